"""Checkpoints that reprolab itself recorded, through the store's door."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from reprolab.errors import CheckpointError, DamagedData, RunNotFound, UnsupportedFormat
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.folders import LocalFolder
from reprolab.formats.nesting import joined, leaves, plain
from reprolab.formats.zarr_arrays import ChunkCache, ZarrArray
from reprolab.formats.zarr_metadata import describe, parse
from reprolab.store import Checkpoint, Run, open_run, paths
from reprolab.vocabulary import Region, TensorSpec

_BARE = ("params", "buffers")
"""Streams whose tensors keep their names, as they would have in a state_dict."""


def open_folder(folder: Path, path: str) -> CheckpointFile | None:
    """Open the folder of one committed checkpoint; None where it is none of reprolab's.

    Raises
    ------
    StepNotCommitted
        Where the checkpoint was never completed.
    UnsupportedFormat
        For the folder of a whole run; lists its checkpoints.
    """
    run = _run(folder)
    if run is not None:
        raise UnsupportedFormat(
            f"this is a run with checkpoints of the steps {run.checkpoints}; open a folder under "
            f"{folder.name}/checkpoints, or compare runs with reprolab.compare",
            path=path,
        )
    run = _run(folder.parent.parent) if folder.name.isdecimal() else None
    if run is None:
        return None
    checkpoint = run.checkpoint(int(folder.name))
    contents = Contents(path)
    cache = ChunkCache()
    for stream in checkpoint.streams:
        for spec in checkpoint.layout(stream).tensors:
            _add(checkpoint, stream, spec, contents, cache)
    for name, leaf in leaves(checkpoint.state(), path):
        contents.metadata[joined("state", name)] = plain(leaf)
    contents.metadata |= {"run": run.name, "step": checkpoint.step}
    return CheckpointFile(path, "reprolab", contents.tensors, metadata=contents.metadata)


def _run(folder: Path) -> Run | None:
    try:
        return open_run(folder)
    except RunNotFound:
        return None
    except DamagedData:
        if paths.attempts(folder):
            raise
        return None  # another tool's run.json


def _add(
    checkpoint: Checkpoint, stream: str, spec: TensorSpec, contents: Contents, cache: ChunkCache
) -> None:
    name = spec.name if stream in _BARE else joined(stream, spec.name)
    own = checkpoint.ranks_of(stream, spec.name)
    if not own or _is_shared(checkpoint, stream, spec.name, own[0]):
        contents.put(name, _Recorded(checkpoint, stream, spec, None, cache))
    for rank in own:
        contents.put(f"{name}@rank-{rank}", _Recorded(checkpoint, stream, spec, rank, cache))


def _is_shared(checkpoint: Checkpoint, stream: str, name: str, owner: int) -> bool:
    """Whether there is a copy of all ranks beside the copies that ranks have of their own."""
    try:
        found = checkpoint.tensor(stream, name)
    except CheckpointError:
        return False
    return bool(found.store_path != checkpoint.tensor(stream, name, owner).store_path)


class _Recorded:
    """A tensor of a recorded checkpoint, found and checked when it is first read."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        stream: str,
        spec: TensorSpec,
        rank: int | None,
        cache: ChunkCache,
    ) -> None:
        self.dtype = spec.dtype
        self.shape = spec.shape
        self._where = (stream, spec.name, rank)
        self._checkpoint = checkpoint
        self._cache = cache

    @cached_property
    def _array(self) -> ZarrArray:
        place = str(self._checkpoint.tensor(*self._where).store_path)
        folder = LocalFolder(Path(place.removeprefix("file://")))
        document = folder.open("zarr.json")
        text = document.read(0, document.size).tobytes()
        document.close()
        description = describe(parse(text, folder.label), folder.label)
        return ZarrArray(folder, description, self._cache, complete=True)

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box, from the chunks that it overlaps."""
        return self._array.read(region)
