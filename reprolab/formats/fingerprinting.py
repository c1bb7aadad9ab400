"""Fingerprints of whole checkpoints, in bounded memory, wherever the work is done."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass
from uuid import uuid4

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.memory import within_limit
from reprolab.formats.opening import open_checkpoint
from reprolab.formats.tasks import run_tasks
from reprolab.kernels import Fingerprint, fingerprint
from reprolab.vocabulary import BLOCK_BYTES, ITEMSIZE, LANES, MOMENTS, Layout, Region, TensorSpec

_ROW_BYTES = 8 * (1 + len(MOMENTS) + LANES)
_PIECE_BYTES = 16 << 20
"""Bytes of a tensor in memory at a time, for each worker."""
_TASK_BYTES = 64 << 20
"""Bytes of one task: enough that what comes back is small beside it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Blocks of one tensor of a checkpoint: an address, and nothing of the tensor."""

    tensor: TensorSpec
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Task:
    """Stretches to fingerprint in one go."""

    path: str
    session: str
    """Tells one pass from another, so that no worker trusts a file it opened for an older one."""
    stretches: tuple[Stretch, ...]
    block_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes that it reads."""
        return sum(
            min(part.stop * self.block_bytes, part.tensor.nbytes) - part.first * self.block_bytes
            for part in self.stretches
        )


def fingerprint_checkpoint(
    checkpoint: str | os.PathLike[str] | CheckpointFile,
    *,
    block_bytes: int = BLOCK_BYTES,
    executor: Executor | None = None,
) -> tuple[Layout, Fingerprint]:
    """Fingerprint every tensor of a checkpoint.

    Parameters
    ----------
    checkpoint : path, URL or CheckpointFile
        What to read. Workers of other processes open its path themselves.
    block_bytes : int
        Size of a block, a multiple of 16.
    executor : Executor, optional
        Where the work is done; threads of this process by default. What comes back is the
        fingerprint alone.

    Returns
    -------
    layout : Layout
        The tensors in the file's order.
    fingerprint : Fingerprint
        ``layout.rows`` rows.

    Raises
    ------
    TooLarge
        Where the fingerprint itself would not fit; larger blocks make it smaller.
    """
    if not isinstance(checkpoint, CheckpointFile):
        with open_checkpoint(checkpoint) as opened:
            return fingerprint_checkpoint(opened, block_bytes=block_bytes, executor=executor)
    layout = Layout(checkpoint.layout.tensors, block_bytes)
    within_limit(
        layout.rows * _ROW_BYTES,
        f"the fingerprint of {layout.rows} blocks of {block_bytes} bytes",
    )
    session = uuid4().hex
    tasks = _tasks(checkpoint.path, session, layout)
    place = {
        tensor.name: start for tensor, start in zip(layout.tensors, layout.starts, strict=False)
    }
    found = Fingerprint.zeros(layout.rows)
    _opened.lend(checkpoint, session)
    try:
        results = run_tasks(
            fingerprint_stretches,
            tasks,
            executor,
            sizes=[task.nbytes for task in tasks],
            label="fingerprint",
        )
        for index, rows in results:
            start = 0
            for part in tasks[index].stretches:
                into = place[part.tensor.name] + part.first
                count = part.stop - part.first
                found.digest[into : into + count] = rows.digest[start : start + count]
                found.moments[into : into + count] = rows.moments[start : start + count]
                found.sketch[into : into + count] = rows.sketch[start : start + count]
                start += count
    finally:
        _opened.take_back(checkpoint.path, session)
    return layout, found


def _tasks(path: str, session: str, layout: Layout) -> list[Task]:
    found: list[Task] = []
    held: list[Stretch] = []
    size = 0
    per_task = max(1, _TASK_BYTES // layout.block_bytes)
    for tensor in layout.tensors:
        blocks = tensor.blocks(layout.block_bytes)
        for first in range(0, blocks, per_task):
            stretch = Stretch(tensor, first, min(first + per_task, blocks))
            held.append(stretch)
            size += stretch.stop - stretch.first
            if size >= per_task:
                found.append(Task(path, session, tuple(held), layout.block_bytes))
                held, size = [], 0
    if held:
        found.append(Task(path, session, tuple(held), layout.block_bytes))
    return found


def fingerprint_stretches(task: Task) -> Fingerprint:
    """Do one task: read its stretches where they lie; rows follow one another in its order."""
    checkpoint = _opened.get(task.path, task.session)
    known = {tensor.name: tensor for tensor in checkpoint.layout.tensors}
    rows: list[Fingerprint] = []
    for part in task.stretches:
        if known.get(part.tensor.name) != part.tensor:
            raise DamagedData(
                "it is not what it was when the pass began; the checkpoint changed meanwhile",
                path=task.path,
                tensor=part.tensor.name,
            )
        step = max(1, _PIECE_BYTES // task.block_bytes)
        for first in range(part.first, part.stop, step):
            stop = min(first + step, part.stop)
            rows.append(_piece(checkpoint, part.tensor, first, stop, task.block_bytes))
    return Fingerprint(
        np.concatenate([part.digest for part in rows]),
        np.concatenate([part.moments for part in rows]),
        np.concatenate([part.sketch for part in rows]),
    )


def _piece(
    checkpoint: CheckpointFile, tensor: TensorSpec, first: int, stop: int, block_bytes: int
) -> Fingerprint:
    per_block = block_bytes // ITEMSIZE[tensor.dtype]
    start, end = first * per_block, min(stop * per_block, tensor.size)
    with checkpoint.lent(tensor.name, start, end) as elements:
        # Row-major order is all that digests and sketches know: any tensor may pass for a flat one.
        part = fingerprint(
            elements,
            shape=(tensor.size,),
            region=Region((start,), (end - start,)),
            block_bytes=block_bytes,
        )
    return part.rows(slice(first, stop))


class _Opened:
    """Checkpoints open in this process, by pass.

    A forked child opens its own: locks that other threads held when it was forked never open in it.
    """

    def __init__(self, limit: int = 4) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], CheckpointFile] = OrderedDict()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._held = OrderedDict()

    def lend(self, checkpoint: CheckpointFile, session: str) -> None:
        with self._lock:
            self._held[checkpoint.path, session] = checkpoint

    def take_back(self, path: str, session: str) -> None:
        with self._lock:
            self._held.pop((path, session), None)

    def get(self, path: str, session: str) -> CheckpointFile:
        key = (path, session)
        with self._lock:
            if key not in self._held:
                self._held[key] = open_checkpoint(path)
                while len(self._held) > self._limit:
                    self._held.popitem(last=False)
            return self._held[key]


_opened = _Opened()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_opened.forget)
