"""Records a training while it runs, without changing a bit of it.

- *recorder*: what :func:`record` gives; a context manager around the training loop.
- *census*: the model's parameters and buffers under the raw model's own names.
- *state*: the streams a step starts from: ``rng``, ``params``, ``buffers``, ``optimizer``.
- *watch*: the hooks on the training, and the gradient streams they fill.
- *spans*: how long each phase took, and what recording itself cost (``capture``).
- *environment*, *code*, *training*: circumstances, identity of the code, settings of the machinery.
- *rendezvous*: how ranks meet, beside the training's process groups.

Capture reads and never writes: it draws no random number, waits for no collective of the training
and leaves every tensor as it is. No communication hook is put on DDP (`gradients` says why).
"""

from reprolab.capture.door import record
from reprolab.capture.recorder import Recorder

__all__ = ["Recorder", "record"]
