"""Checkpoints that other tools wrote, read tensor by tensor and never by running them.

- *source*: bytes read by range, in a file, behind a URL, or a part of either.
- *folder*: files under names: a folder, a prefix behind a URL, a zip archive, a database.
- *elements*: a flat sequence of elements of one dtype, somewhere in sources.
- *stored tensor*: dtype, shape and a way to read any box: strided over elements, a mosaic of
  boxes in several files, or the chunks of a Zarr array.
- *checkpoint file*: stored tensors by name, and whatever else the format says.

```
open_checkpoint -> what is it? -> safetensors, torch, dcp, deepspeed, npz   sources -> elements
                                  zarr, orbax                               folders -> chunks
                -> CheckpointFile -> fingerprint_checkpoint -> tasks (addresses, never tensors)
```
"""

from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.fingerprinting import fingerprint_checkpoint
from reprolab.formats.opening import open_checkpoint

__all__ = ["CheckpointFile", "fingerprint_checkpoint", "open_checkpoint"]
