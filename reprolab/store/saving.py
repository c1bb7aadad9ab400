"""Writes a checkpoint: all ranks or nothing.

1. Every rank offers its tensors with their digests; all work out the same plan.
2. Every rank writes its chunks and makes them durable, then says so.
3. Rank 0 publishes the commit record once *all* ranks said so, and tells them.

Until the record is there the step does not exist; whatever an interrupted save left is removed by
the next save of that step or the next attempt.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import google_crc32c
import numpy as np

from reprolab.errors import CheckpointFailed, RankTimeout
from reprolab.kernels import fingerprint
from reprolab.store import paths
from reprolab.store.arrays import array_metadata, group_metadata, numpy_dtype
from reprolab.store.chunks import WriteRequest, write_requests
from reprolab.store.durable import publish_file, sync_folder
from reprolab.store.planning import Offer, Stored, plan
from reprolab.store.records import simple, write_text
from reprolab.store.rendezvous import Rendezvous, exchange
from reprolab.vocabulary import ITEMSIZE, TensorSpec

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
    """Saves the checkpoints of one attempt; each rank has one."""

    def __init__(self, run: Path, attempt: int, rendezvous: Rendezvous, timeout: float) -> None:
        self._run, self._attempt = run, attempt
        self._rendezvous, self._timeout = rendezvous, timeout
        self._rank = rendezvous.rank
        self._saves = 0

    def save(
        self,
        step: int,
        tensors: Tensors,
        private: Container[str],
        state: Mapping[str, Any] | None,
        sync_records: Callable[[], None],
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
        held: dict[tuple[str, str], np.ndarray] = {}
        answers = self._meet(step, "offers", lambda: self._offer(step, tensors, state, held))
        arrays = self._plan(step, answers, private)

        def write() -> dict[str, Any]:
            sync_records()
            write_requests(self._requests(step, arrays, held))
            return {}

        def commit() -> dict[str, Any]:
            if self._rank == 0:
                self._commit(step, arrays, [answer["state"] for answer in answers])
            return {}

        self._meet(step, "written", write)
        self._meet(step, "committed", commit)
        return _receipt(step, arrays, self._rank, time.monotonic() - began)

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
        except RankTimeout as error:
            raise self._failed(step, error.message, error.where.get("rank")) from failure or error
        for rank, answer in enumerate(answers):
            if "failed" in answer:
                why = f"a rank could not do its part: {answer['failed']}"
                raise self._failed(step, why, rank) from failure
        return answers

    def _failed(self, step: int, why: str, rank: object) -> CheckpointFailed:
        """Remove what this save wrote, once for all ranks, and say so."""
        if self._rank == 0 and not paths.commit(self._run, step).exists():
            shutil.rmtree(paths.checkpoint(self._run, step), ignore_errors=True)
        return CheckpointFailed(
            f"{why}. This step is not saved; earlier checkpoints stay good",
            run=self._run.name,
            step=step,
            rank=rank,
        )

    def _offer(
        self,
        step: int,
        tensors: Tensors,
        state: Mapping[str, Any] | None,
        held: dict[tuple[str, str], np.ndarray],
    ) -> dict[str, Any]:
        """Make room and say what this rank holds; `held` gets the bytes."""
        if self._rank == 0:
            if paths.commit(self._run, step).exists():
                raise FileExistsError("it is committed already, and a step is never overwritten")
            folder = paths.checkpoint(self._run, step)
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        offers = []
        for stream, specs in tensors.items():
            paths.check_stream_name(stream)
            for spec, array in specs:
                data = _bytes_of(stream, spec, array)
                held[stream, spec.name] = data
                elements = data.view(numpy_dtype(spec.dtype)).reshape(spec.shape)
                digest = int(fingerprint(elements).total().digest[0])
                offers.append(Offer(stream, spec, f"{digest:016x}"))
        return {"offers": [offer.record() for offer in offers], "state": simple(state)}

    def _plan(
        self, step: int, answers: Sequence[Mapping[str, Any]], private: Container[str]
    ) -> list[Stored]:
        offers = [[Offer.of(record) for record in answer["offers"]] for answer in answers]
        try:
            return plan(offers, private)
        except ValueError as error:
            raise self._failed(step, str(error), None) from error

    def _requests(
        self, step: int, arrays: Sequence[Stored], held: Mapping[tuple[str, str], np.ndarray]
    ) -> list[WriteRequest]:
        """What this rank has to write; its folders are made."""
        requests = []
        for array in arrays:
            place = paths.checkpoint(self._run, step) / array.path
            mine = [number for number, rank in enumerate(array.writers) if rank == self._rank]
            if array.lead == self._rank or mine:
                place.mkdir(parents=True, exist_ok=True)
            if array.lead == self._rank:
                requests.append(WriteRequest(place / "zarr.json", _metadata(array)))
            item = ITEMSIZE[array.spec.dtype]
            for number in mine:
                part = array.grid.elements(number)
                data = held[array.stream, array.spec.name][part.start * item : part.stop * item]
                path = place / array.grid.key(number)
                requests.append(WriteRequest(path, data, array.grid.chunk_size * item))
        return requests

    def _commit(self, step: int, arrays: Sequence[Stored], states: list[Any]) -> None:
        """Make the groups, and then the record that makes the step exist."""
        folder = paths.checkpoint(self._run, step)
        groups = {folder}
        for array in arrays:
            groups.update(folder / parent for parent in PurePosixPath(array.path).parents)
        text = group_metadata({})
        write_requests([WriteRequest(group / "zarr.json", text) for group in sorted(groups)])
        sync_folder(folder.parent)
        record = {
            "step": step,
            "kind": "full",
            "base_step": None,
            "attempt": self._attempt,
            "world_size": self._rendezvous.world_size,
            "committed": time.time(),
            "states": states,
            "arrays": [_array_record(array) for array in arrays],
        }
        publish_file(paths.commit(self._run, step), write_text(record))


def _bytes_of(stream: str, spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if data.nbytes != spec.nbytes:
        raise ValueError(
            f"tensor {spec.name!r} of stream {stream!r} must be {spec.nbytes} bytes; "
            f"got {data.nbytes}"
        )
    return data


def _metadata(array: Stored) -> bytes:
    """Content of an array's ``zarr.json``."""
    attributes = {"name": array.spec.name}
    return array_metadata(array.spec.dtype, array.spec.shape, array.grid.chunk, attributes)


def _array_record(array: Stored) -> dict[str, Any]:
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
        "metadata": f"{google_crc32c.value(_metadata(array)):08x}",
    }


def _receipt(step: int, arrays: Sequence[Stored], rank: int, seconds: float) -> CheckpointReceipt:
    nbytes = written = 0
    shared = {(array.stream, array.spec.name) for array in arrays if array.rank is None}
    odd: dict[tuple[str, str], list[int]] = {}
    for array in arrays:
        key = array.stream, array.spec.name
        nbytes += array.spec.nbytes
        item = ITEMSIZE[array.spec.dtype]
        for number, writer in enumerate(array.writers):
            written += item * len(array.grid.elements(number)) * (writer == rank)
        if array.rank is not None and key in shared:
            odd.setdefault(key, []).append(array.rank)
    disagreements = tuple((*key, tuple(ranks)) for key, ranks in odd.items())
    return CheckpointReceipt(step, nbytes, written, seconds, disagreements)
