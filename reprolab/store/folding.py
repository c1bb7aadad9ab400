"""Folds journals into Zarr arrays, so that a crash at any point loses and doubles nothing.

Chunks first, then the arrays' metadata, then the group's attributes that count the rows, then the
journals go: each durable before the next begins. Rows that are there already keep their bytes, so
a reader may go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from reprolab.store.arrays import array_metadata, group_metadata, numpy_dtype
from reprolab.store.chunks import read_chunk, write_chunk
from reprolab.store.durable import replace_file, sync_folder
from reprolab.store.folded import COLUMNS, Index, chunk_file, read_index
from reprolab.store.journal import Entry, JournalReader
from reprolab.store.layouts import roll_up
from reprolab.vocabulary import Layout


def fold(group: Path, journals: Sequence[tuple[int, Path]]) -> None:
    """Fold the journals of one rank into its group and remove them.

    Parameters
    ----------
    group : Path
        The rank's Zarr group; made if it is missing.
    journals : sequence of (int, Path)
        Attempt and file of each journal, in order of attempts.
    """
    readers = [(attempt, JournalReader(path)) for attempt, path in journals]
    streams = dict.fromkeys(entry.stream for _, reader in readers for entry in reader.entries)
    group.mkdir(parents=True, exist_ok=True)
    if not (group / "zarr.json").exists():
        replace_file(group / "zarr.json", group_metadata({}))
        sync_folder(group.parent)
    for stream in streams:
        _fold_stream(group / stream, stream, readers)
    for _, path in journals:
        path.unlink()
        sync_folder(path.parent)


def _fold_stream(group: Path, stream: str, readers: Sequence[tuple[int, JournalReader]]) -> None:
    before = read_index(group)
    folded = before.attempts if before else ()
    fresh = [
        (attempt, reader, entry)
        for attempt, reader in readers
        if attempt not in folded
        for entry in reader.entries
        if entry.stream == stream
    ]
    if not fresh:
        return
    index, numbers = _extended(before, fresh)
    writers = {name: _Appender(group, name, index, before) for name in COLUMNS}
    first = before.rows if before else 0
    for row, (attempt, reader, entry) in enumerate(fresh, first):
        fingerprint = reader.read(entry)
        tensors = roll_up(entry.layout, fingerprint)
        values: dict[str, Any] = {
            "step": entry.step,
            "attempt": attempt,
            "layout": numbers[entry.layout],
            "stream_digest": entry.digest,
            "tensor_digest": tensors.digest,
            "tensor_moments": tensors.moments,
            "tensor_sketch": tensors.sketch,
            "digest": fingerprint.digest,
            "moments": fingerprint.moments,
            "sketch": fingerprint.sketch,
        }
        for name, writer in writers.items():
            writer.put(row, values[name])
    for writer in writers.values():
        writer.finish()
    replace_file(group / "zarr.json", group_metadata(index.attributes()))
    sync_folder(group.parent)


def _extended(
    before: Index | None, fresh: Sequence[tuple[int, JournalReader, Entry]]
) -> tuple[Index, dict[Layout, int]]:
    """The index after a fold, and the number of each layout."""
    numbers = {layout: number for number, layout in enumerate(before.layouts if before else ())}
    for _, _, entry in fresh:
        numbers.setdefault(entry.layout, len(numbers))
    attempts = (before.attempts if before else ()) + tuple(
        dict.fromkeys(attempt for attempt, _, _ in fresh)
    )
    rows = (before.rows if before else 0) + len(fresh)
    index = Index(rows, attempts, tuple(numbers), {})
    chunks = {}
    for name, column in COLUMNS.items():
        width = column.width or ""
        # An array without a width has no chunks yet, so they may still be chosen.
        keep = before is not None and (not width or before.widths[width])
        chunks[name] = (
            before.chunks[name]
            if before is not None and keep
            else column.chunk(rows, index.widths.get(width, 0))
        )
    return replace(index, chunks=chunks), numbers


class _Appender:
    """Appends rows to one array, one band of chunks in memory at a time."""

    def __init__(self, group: Path, name: str, index: Index, before: Index | None) -> None:
        self._group, self._name, self._index = group, name, index
        self._chunk = index.chunks[name]
        self._wide = bool(COLUMNS[name].width)
        self._dtype = numpy_dtype(COLUMNS[name].dtype)
        self._bytes = prod(self._chunk) * self._dtype.itemsize
        self._across = -(-index.shape(name)[1] // self._chunk[1]) if self._wide else 1
        self._before = before
        self._band = -1
        self._rows: list[np.ndarray] = []
        (group / name).mkdir(parents=True, exist_ok=True)

    def put(self, row: int, values: np.ndarray | int) -> None:
        """Put one row; rows come in order."""
        band, within = divmod(row, self._chunk[0])
        if band != self._band:
            self._write()
            self._begin(band)
        if not self._wide:
            self._rows[0][within] = values
            return
        wide = self._chunk[1]
        values = np.asarray(values)
        for across in range(-(-len(values) // wide)):
            part = values[across * wide : (across + 1) * wide]
            self._rows[across][within, : len(part)] = part

    def finish(self) -> None:
        """Write what is left and the array's metadata, and make it all durable."""
        self._write()
        column = COLUMNS[self._name]
        shape = self._index.shape(self._name)
        metadata = array_metadata(column.dtype, shape, self._chunk, {}, column.dims)
        replace_file(self._group / self._name / "zarr.json", metadata)

    def _begin(self, band: int) -> None:
        self._band = band
        self._rows = [np.zeros(self._chunk, self._dtype) for _ in range(self._across)]
        before = self._before
        if before is None or band * self._chunk[0] >= before.rows:
            return
        filled = before.rows - band * self._chunk[0]
        across = -(-before.shape(self._name)[1] // self._chunk[1]) if self._wide else 1
        for number in range(across):
            path = chunk_file(self._group, self._name, band, number)
            kept = read_chunk(path, self._bytes).view(self._dtype).reshape(self._chunk)
            self._rows[number][:filled] = kept[:filled]

    def _write(self) -> None:
        for number, values in enumerate(self._rows):
            path = chunk_file(self._group, self._name, self._band, number)
            draft = path.with_name(f".{path.name}.draft")
            write_chunk(draft, values.reshape(-1).view(np.uint8), self._bytes)
            draft.replace(path)
        self._rows = []
