"""Finds where two distributed training runs part that should have been the same.

A *lab* is a folder of *runs*. A run is recorded by ``record`` in the training loop: at every
*step*, on every *rank*, each *stream* of state is reduced to *fingerprints*, one a *block* of each
*tensor*. Fingerprints add up over shards, tell whether two tensors are the same and how far apart
they are, and are small enough to keep for every step. ``compare`` finds the first difference of
two runs in causal order, and reads stored *checkpoints* only where the exact element is wanted.

===================  ==============================================================================
``record``           record a training loop: a context manager around it
``Policy``           what is captured, how often, and what happens when the disk refuses
``open_lab``         a folder of runs
``open_run``         one run: its facts, fingerprints and checkpoints
``open_checkpoint``  a checkpoint that another tool wrote, tensor by tensor
``compare``          where two runs part, or the ranks of one run
``Comparison``       what ``compare`` returns: a verdict, the first difference, rows
``DivergenceView``   a comparison to look at and scrub through, in JupyterLab
``report``           a comparison as one self-contained HTML page
``stragglers``       who was late in a run or a trace, what it cost, what to do
``Stragglers``       what ``stragglers`` returns: a verdict, evidence, what-if, cost, plan
``ReprolabError``    base of all errors
===================  ==============================================================================
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from reprolab.errors import ReprolabError

if TYPE_CHECKING:
    from reprolab.capture import record
    from reprolab.comparison import Comparison, compare
    from reprolab.diagnosis.straggling import Stragglers, stragglers
    from reprolab.formats import open_checkpoint
    from reprolab.policy import Policy
    from reprolab.store import open_lab, open_run
    from reprolab.views import DivergenceView, report

__version__ = version("reprolab")

_HOMES = {
    "record": "reprolab.capture",
    "Policy": "reprolab.policy",
    "open_lab": "reprolab.store",
    "open_run": "reprolab.store",
    "open_checkpoint": "reprolab.formats",
    "compare": "reprolab.comparison",
    "Comparison": "reprolab.comparison",
    "DivergenceView": "reprolab.views",
    "report": "reprolab.views",
    "stragglers": "reprolab.diagnosis.straggling",
    "Stragglers": "reprolab.diagnosis.straggling",
}

__all__ = [
    "Comparison",
    "DivergenceView",
    "Policy",
    "ReprolabError",
    "Stragglers",
    "compare",
    "open_checkpoint",
    "open_lab",
    "open_run",
    "record",
    "report",
    "stragglers",
]


def __getattr__(name: str) -> object:
    # Lazily, so that a notebook without torch and a training without Polars both import quickly.
    if name not in _HOMES:
        raise AttributeError(f"module 'reprolab' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
