"""Reads a committed checkpoint: arrays of tensors, whole, in blocks, or as Zarr sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np

from reprolab.errors import CheckpointError, DamagedData, FormatTooNew, StepNotCommitted
from reprolab.kernels import fingerprint
from reprolab.store import paths, records
from reprolab.store.arrays import numpy_dtype
from reprolab.store.chunks import CHECKSUM_BYTES, read_chunk, read_chunks
from reprolab.store.grid import Grid
from reprolab.vocabulary import BLOCK_BYTES, Layout, TensorSpec

if TYPE_CHECKING:
    import zarr

_MOST_PROBLEMS = 100
"""Damaged files that are listed for one array."""


@dataclass(frozen=True, slots=True)
class _Array:
    """One array of the commit record."""

    spec: TensorSpec
    grid: Grid
    digest: str
    folder: Path
    metadata: str

    @property
    def item(self) -> int:
        return numpy_dtype(self.spec.dtype).itemsize

    @property
    def chunk_bytes(self) -> int:
        return self.grid.chunk_size * self.item


class Checkpoint:
    """The state of all ranks at the start of one step."""

    def __init__(self, run: Path, step: int, block_bytes: int = BLOCK_BYTES) -> None:
        self.run = run
        self.step = step
        self.chunks_read = 0
        """Chunk files that :meth:`block` and :meth:`read` have opened so far."""
        self._block_bytes = block_bytes
        self._folder = paths.checkpoint(run, step)
        try:
            self._record = records.read_file(paths.commit(run, step))
        except FileNotFoundError:
            raise StepNotCommitted("no commit record", run=run.name, step=step) from None
        except (DamagedData, FormatTooNew) as error:
            raise error.at(run=run.name, step=step) from None
        if self._record.get("kind") != "full":
            raise FormatTooNew(
                f"this checkpoint is of the kind {self._record.get('kind')!r} and the installed "
                "reprolab reads 'full' ones; install a newer reprolab to read it",
                run=run.name,
                step=step,
            )
        self._arrays: dict[str, dict[str, dict[int | None, _Array]]] = {}
        self._holders: dict[tuple[str, str], set[int]] = {}
        try:
            for entry in self._record["arrays"]:
                self._add(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedData(
                f"the commit record does not describe its arrays: {error!r}",
                run=run.name,
                step=step,
            ) from error

    @property
    def kind(self) -> str:
        """How the state is stored; ``"full"`` is every byte."""
        return self._record["kind"]

    @property
    def attempt(self) -> int:
        """The attempt that saved it."""
        return self._record["attempt"]

    def state(self, rank: int = 0) -> dict[str, Any] | None:
        """What a rank saved besides tensors."""
        return self._record["states"][rank]

    @property
    def streams(self) -> list[str]:
        """Stored streams."""
        return list(self._arrays)

    def layout(self, stream: str) -> Layout:
        """Tensors of a stream; where ranks disagree on one, the shared copy's."""
        tensors = self._of(stream).values()
        chosen = (copies.get(None) or next(iter(copies.values())) for copies in tensors)
        return Layout(tuple(array.spec for array in chosen), self._block_bytes)

    def ranks_of(self, stream: str, name: str) -> list[int]:
        """Ranks that have a copy of their own."""
        return sorted(rank for rank in self._copies(stream, name) if rank is not None)

    def tensor(self, stream: str, name: str, rank: int | None = None) -> zarr.Array:
        """A tensor as a Zarr array that reads on demand; `rank` as in :meth:`read`.

        Raises
        ------
        CheckpointError
            If there is no such tensor.
        DamagedData
            If its files are not those that were written. Zarr would read a missing chunk as
            zeros, so this is checked first; the checksum of a chunk is checked when it is read.
        """
        from reprolab.store.datatypes import open_array

        array = self._array(stream, name, rank)
        for problem in self._file_problems(array):
            raise problem.at(**self._place(stream, name, rank))
        return open_array(array.folder)

    def read(
        self, stream: str, name: str, rank: int | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """A whole tensor.

        Parameters
        ----------
        stream, name : str
            Which tensor.
        rank : int, optional
            What this rank held: its own copy where it has one, else the shared one. Without it
            the shared copy, or the only one.
        out : ndarray, optional
            Contiguous memory of the tensor's size to read into.

        Returns
        -------
        ndarray
            Of the tensor's dtype and shape.

        Raises
        ------
        CheckpointError
            If there is no such tensor.
        DamagedData
            If a chunk does not check.
        """
        array = self._array(stream, name, rank)
        for problem in self._file_problems(array):
            # The record's sizes are believed only where files of these sizes are there.
            raise problem.at(**self._place(stream, name, rank))
        data = np.empty(array.spec.nbytes, np.uint8) if out is None else _bytes_of(out)
        if len(data) != array.spec.nbytes:
            raise ValueError(f"out must be {array.spec.nbytes} bytes; got {len(data)}")
        files, parts = [], []
        for number in range(array.grid.size):
            held = array.grid.elements(number)
            files.append(array.folder / array.grid.key(number))
            parts.append(data[held.start * array.item : held.stop * array.item])
        self.chunks_read += len(files)
        try:
            read_chunks(files, array.chunk_bytes, parts)
        except DamagedData as error:
            raise error.at(**self._place(stream, name, rank)) from None
        return data.view(numpy_dtype(array.spec.dtype)).reshape(array.spec.shape)

    def block(self, stream: str, name: str, block: int, rank: int | None = None) -> np.ndarray:
        """Elements of one block, flat; only the chunks that hold any of them are read."""
        array = self._array(stream, name, rank)
        per_block = self._block_bytes // array.item
        start = block * per_block
        stop = min(start + per_block, array.spec.size)
        if not 0 <= start < stop:
            blocks = array.spec.blocks(self._block_bytes)
            raise CheckpointError(
                f"the tensor has {blocks} blocks; got block {block}",
                **self._place(stream, name, rank),
            )
        pieces = []
        for number in array.grid.overlapping(start, stop):
            held = array.grid.elements(number)
            self.chunks_read += 1
            try:
                data = read_chunk(array.folder / array.grid.key(number), array.chunk_bytes)
            except DamagedData as error:
                raise error.at(**self._place(stream, name, rank)) from None
            elements = data.view(numpy_dtype(array.spec.dtype))[: len(held)]
            pieces.append(elements[max(0, start - held.start) : stop - held.start])
        return np.concatenate(pieces)

    def verify(self) -> list[DamagedData]:
        """Read every byte and compare it with the commit record; what is wrong, as errors."""
        problems = []
        for stream, name, rank, array in self._all():
            place = self._place(stream, name, rank)
            found = list(islice(self._file_problems(array), _MOST_PROBLEMS))
            if not found:
                try:
                    digest = fingerprint(self.read(stream, name, rank)).total().digest[0]
                    if f"{int(digest):016x}" != array.digest:
                        found = [
                            DamagedData(
                                f"every chunk checks, and yet the tensor's digest is "
                                f"{int(digest):016x} instead of {array.digest}: chunks were swapped"
                            )
                        ]
                except DamagedData as error:
                    found = [error]
            for problem in found:
                problem.at(**place)
            problems += found
        return problems

    def _add(self, entry: dict[str, Any]) -> None:
        spec = TensorSpec(entry["tensor"], entry["dtype"], tuple(entry["shape"]))
        array = _Array(
            spec,
            Grid(spec.shape, tuple(entry["chunk"])),
            entry["digest"],
            paths.inside(self._folder, entry["path"]),
            entry["metadata"],
        )
        copies = self._arrays.setdefault(entry["stream"], {}).setdefault(spec.name, {})
        copies[entry["rank"]] = array
        self._holders.setdefault((entry["stream"], spec.name), set()).update(entry["ranks"])

    def _of(self, stream: str) -> dict[str, dict[int | None, _Array]]:
        if stream not in self._arrays:
            raise CheckpointError(
                f"this checkpoint holds the streams {self.streams}",
                run=self.run.name,
                step=self.step,
                stream=stream,
            )
        return self._arrays[stream]

    def _copies(self, stream: str, name: str) -> dict[int | None, _Array]:
        tensors = self._of(stream)
        if name not in tensors:
            near = ", ".join(list(tensors)[:5]) or "none"
            raise CheckpointError(
                f"no such tensor among the {len(tensors)} of this stream (the first are: {near})",
                **self._place(stream, name, None),
            )
        return tensors[name]

    def _array(self, stream: str, name: str, rank: int | None) -> _Array:
        copies = self._copies(stream, name)
        if rank in copies:
            return copies[rank]
        if rank is None and len(copies) == 1:
            return next(iter(copies.values()))
        if rank is not None and None in copies and rank in self._holders[stream, name]:
            return copies[None]
        wanted = "name the rank" if rank is None else "this rank held no such tensor"
        raise CheckpointError(
            f"{wanted}: ranks {sorted(self._holders[stream, name])} hold it",
            **self._place(stream, name, rank),
        )

    def _all(self) -> Iterator[tuple[str, str, int | None, _Array]]:
        for stream, tensors in self._arrays.items():
            for name, copies in tensors.items():
                for rank, array in copies.items():
                    yield stream, name, rank, array

    def _file_problems(self, array: _Array) -> Iterator[DamagedData]:
        path = array.folder / "zarr.json"
        try:
            found = f"{google_crc32c.value(path.read_bytes()):08x}"
        except OSError:
            found = "missing"
        if found != array.metadata:
            yield DamagedData(
                f"the checksum of this metadata is {found}, and {array.metadata} was written",
                path=path,
            )
        for number in range(array.grid.size):
            chunk = array.folder / array.grid.key(number)
            size = array.chunk_bytes + CHECKSUM_BYTES
            length = chunk.stat().st_size if chunk.exists() else None
            if length != size:
                state = "is missing" if length is None else f"is {length}"
                yield DamagedData(f"this chunk must be {size} bytes; it {state}", chunk=chunk)

    def _place(self, stream: str, name: str, rank: int | None) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "step": self.step,
            "rank": rank,
            "stream": stream,
            "tensor": name,
        }


def _bytes_of(out: np.ndarray) -> np.ndarray:
    if not out.flags.c_contiguous:
        raise ValueError("out must be contiguous")
    return out.reshape(-1).view(np.uint8)
