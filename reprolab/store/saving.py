"""Writes a checkpoint: all ranks or nothing.

1. Every rank offers its tensors with their digests; all work out the same plan.
2. Every rank writes its chunks and makes them durable, then says so.
3. Rank 0 publishes the commit record once *all* ranks said so, and tells them.

Until the record is there the step does not exist; whatever an interrupted save left is removed by
the next save of that step or the next attempt.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from reprolab.errors import CheckpointFailed, RankTimeout
from reprolab.kernels import fingerprint
from reprolab.store import paths
from reprolab.store.arrays import array_metadata, group_metadata, numpy_dtype
from reprolab.store.chunks import write_chunk
from reprolab.store.durable import publish_file, sync_folder, write_file
from reprolab.store.planning import Offer, Stored, plan
from reprolab.store.records import simple, write_text
from reprolab.store.rendezvous import Rendezvous, exchange
from reprolab.vocabulary import ITEMSIZE, TensorSpec

_THREADS = 4

Tensors = Mapping[str, Sequence[tuple[TensorSpec, np.ndarray]]]
"""For each stream its tensors and their bytes, in order."""


@dataclass(frozen=True, slots=True)
class CheckpointReceipt:
    """What became of a checkpoint."""

    step: int
    nbytes: int
    """Bytes of all its tensors, each copy counted."""
    written: int
    """Bytes of them that this rank wrote."""
    seconds: float
    """Time this rank took."""
    disagreements: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Stream, tensor and the ranks whose bytes differ from what most ranks hold."""


class Saver:
    """Saves the checkpoints of one attempt; one on each rank."""

    def __init__(self, run: Path, attempt: int, rendezvous: Rendezvous, timeout: float) -> None:
        self._run, self._attempt = run, attempt
        self._rendezvous, self._timeout = rendezvous, timeout
        self._saves = 0

    def save(
        self,
        step: int,
        tensors: Tensors,
        private: Container[str],
        state: Mapping[str, Any] | None,
        before_commit: Callable[[], None],
    ) -> CheckpointReceipt:
        """Save one step; every rank calls this with the same step.

        Raises
        ------
        CheckpointFailed
            On every rank, if any of them could not do its part. Nothing was committed then, unless
            this rank alone gave up waiting: the commit record is what counts.
        """
        began = time.monotonic()
        self._saves += 1
        try:
            return self._save(step, tensors, private, state, before_commit, began)
        except RankTimeout as error:
            raise CheckpointFailed(
                f"{error.message}; this step is not saved, earlier checkpoints stay good",
                run=self._run.name,
                step=step,
                **error.where,
            ) from error

    def _save(
        self,
        step: int,
        tensors: Tensors,
        private: Container[str],
        state: Mapping[str, Any] | None,
        before_commit: Callable[[], None],
        began: float,
    ) -> CheckpointReceipt:
        rank = self._rendezvous.rank
        folder = paths.checkpoint(self._run, step)
        flat: dict[tuple[str, str], np.ndarray] = {}

        def prepare() -> dict[str, Any]:
            if rank == 0:
                self._clear(step)
            offers = [
                _offer(stream, spec, array, flat)
                for stream, held in tensors.items()
                for spec, array in held
            ]
            return {"offers": [offer.record() for offer in offers], "state": simple(state)}

        answers = self._meet(step, "offers", prepare)
        arrays: list[Stored] = []
        written: dict[str, str] = {}

        def write() -> dict[str, Any]:
            offers = [[Offer.of(record) for record in answer["offers"]] for answer in answers]
            arrays.extend(plan(offers, private))
            written.update(_write_part(folder, arrays, flat, rank))
            before_commit()
            return {"metadata": written}

        def publish() -> dict[str, Any]:
            if rank == 0:
                metadata = {
                    path: crc for answer in parts for path, crc in answer["metadata"].items()
                }
                self._publish(step, arrays, metadata, [answer["state"] for answer in answers])
            return {}

        parts = self._meet(step, "written", write)
        self._meet(step, "committed", publish)
        sizes = [array.grid.size and array.spec.nbytes for array in arrays]
        return CheckpointReceipt(
            step, sum(sizes), _written(arrays, rank), time.monotonic() - began, _odd(arrays)
        )

    def _meet(
        self, step: int, what: str, act: Callable[[], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Do this rank's part and hear from the others; if one failed, all do."""
        failure: Exception | None = None
        try:
            message = act()
        except Exception as error:
            failure = error
            message = {"failed": f"{type(error).__name__}: {error}"}
        key = f"checkpoint/{self._saves}/{step}/{what}"
        try:
            answers = exchange(self._rendezvous, key, message, self._timeout)
        except RankTimeout:
            self._leave(step)
            raise
        failed = {
            rank: answer["failed"] for rank, answer in enumerate(answers) if "failed" in answer
        }
        if failed:
            self._leave(step)
            rank, reason = next(iter(failed.items()))
            raise CheckpointFailed(
                f"rank {rank} could not do its part ({reason}); nothing of this step is kept, "
                "earlier checkpoints stay good",
                run=self._run.name,
                step=step,
                rank=rank,
            ) from failure
        return answers

    def _clear(self, step: int) -> None:
        if paths.commit(self._run, step).exists():
            raise FileExistsError("this step is committed already and a step is never overwritten")
        folder = paths.checkpoint(self._run, step)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)

    def _leave(self, step: int) -> None:
        """Remove what this save wrote; rank 0 does it for all, once nobody writes any more."""
        if self._rendezvous.rank == 0 and not paths.commit(self._run, step).exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(paths.checkpoint(self._run, step))

    def _publish(
        self, step: int, arrays: Sequence[Stored], metadata: Mapping[str, str], states: list[Any]
    ) -> None:
        folder = paths.checkpoint(self._run, step)
        groups = {folder}
        for array in arrays:
            groups.update((folder / array.path).parents)
        inside = {group for group in groups if group == folder or folder in group.parents}
        for group in sorted(inside):
            write_file(group / "zarr.json", group_metadata({}))
            sync_folder(group)
        sync_folder(folder.parent)
        record = {
            "step": step,
            "kind": "full",
            "base_step": None,
            "attempt": self._attempt,
            "world_size": self._rendezvous.world_size,
            "committed": time.time(),
            "states": states,
            "arrays": [_stored_record(array, metadata[array.path]) for array in arrays],
        }
        publish_file(paths.commit(self._run, step), write_text(record))


def _offer(
    stream: str, spec: TensorSpec, array: np.ndarray, flat: dict[tuple[str, str], np.ndarray]
) -> Offer:
    paths.check_stream_name(stream)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if data.nbytes != spec.nbytes:
        raise ValueError(
            f"tensor {spec.name!r} of stream {stream!r} must be {spec.nbytes} bytes; "
            f"got {data.nbytes}"
        )
    flat[stream, spec.name] = data
    elements = data.view(numpy_dtype(spec.dtype)).reshape(spec.shape)
    return Offer(stream, spec, f"{int(fingerprint(elements).total().digest[0]):016x}")


def _write_part(
    folder: Path, arrays: Sequence[Stored], flat: Mapping[tuple[str, str], np.ndarray], rank: int
) -> dict[str, str]:
    """Write this rank's chunks and metadata durably; checksum of each metadata file by path."""
    jobs: list[tuple[Path, bytes | np.ndarray, int]] = []
    metadata = {}
    for array in arrays:
        place = folder / array.path
        mine = [number for number, writer in enumerate(array.writers) if writer == rank]
        if array.lead == rank or mine:
            place.mkdir(parents=True, exist_ok=True)
        if array.lead == rank:
            text = stored_metadata(array.spec, array.grid.chunk)
            metadata[array.path] = f"{google_crc32c.value(text):08x}"
            jobs.append((place / "zarr.json", text, 0))
        item = ITEMSIZE[array.spec.dtype]
        for number in mine:
            held = array.grid.elements(number)
            data = flat[array.stream, array.spec.name][held.start * item : held.stop * item]
            jobs.append((place / array.grid.key(number), data, array.grid.chunk_size * item))
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(_write_job, jobs):
            pass
        for _ in threads.map(sync_folder, {path.parent for path, _, _ in jobs}):
            pass
    return metadata


def _write_job(job: tuple[Path, bytes | np.ndarray, int]) -> None:
    path, data, size = job
    if isinstance(data, bytes):
        write_file(path, data)
    else:
        write_chunk(path, data, size)


def stored_metadata(spec: TensorSpec, chunk: tuple[int, ...]) -> bytes:
    """Content of the ``zarr.json`` of a stored tensor."""
    return array_metadata(spec.dtype, spec.shape, chunk, {"name": spec.name})


def _stored_record(array: Stored, metadata: str) -> dict[str, Any]:
    return {
        "stream": array.stream,
        "tensor": array.spec.name,
        "dtype": array.spec.dtype,
        "shape": array.spec.shape,
        "chunk": array.grid.chunk,
        "rank": array.rank,
        "ranks": array.holders,
        "digest": array.digest,
        "path": array.path,
        "metadata": metadata,
    }


def _written(arrays: Sequence[Stored], rank: int) -> int:
    return sum(
        len(array.grid.elements(number)) * ITEMSIZE[array.spec.dtype]
        for array in arrays
        for number, writer in enumerate(array.writers)
        if writer == rank
    )


def _odd(arrays: Sequence[Stored]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    shared = {(array.stream, array.spec.name) for array in arrays if array.rank is None}
    odd: dict[tuple[str, str], list[int]] = {}
    for array in arrays:
        key = array.stream, array.spec.name
        if array.rank is not None and key in shared:
            odd.setdefault(key, []).append(array.rank)
    return tuple((*key, tuple(ranks)) for key, ranks in odd.items())
