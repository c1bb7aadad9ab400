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
from reprolab.store.durable import Drafts, sync_all, sync_folder, write_file
from reprolab.store.folded import COLUMNS, Index, chunk_file, read_index
from reprolab.store.journal import Entry, JournalReader
from reprolab.store.layouts import roll_up
from reprolab.vocabulary import Layout


def fold(group: Path, attempt: int, journal: Path) -> None:
    """Fold the journal of one rank and attempt into the rank's group and remove it.

    Parameters
    ----------
    group : Path
        The rank's Zarr group; made if it is missing.
    attempt : int
        The attempt in which the journal was written.
    journal : Path
        Its file, not written any more.

    Raises
    ------
    DamagedData
        If the journal or what was folded before does not check; the journal stays then.
    OSError
        If the disk refuses; the journal stays then.
    """
    reader = JournalReader(journal)
    streams: dict[str, list[Entry]] = {}
    for entry in reader.entries:
        streams.setdefault(entry.stream, []).append(entry)
    group.mkdir(parents=True, exist_ok=True)
    with Drafts() as rows, Drafts() as counts:
        for stream, entries in streams.items():
            place = group / stream
            before = read_index(place)
            if before is None or attempt not in before.attempts:
                index = _append(place, attempt, reader, entries, before, rows)
                write_file(
                    counts.add(place / "zarr.json"), group_metadata(index.attributes()), sync=False
                )
        write_file(counts.add(group / "zarr.json"), group_metadata({}), sync=False)
        rows.publish()
        sync_all([*(group / stream for stream in streams), group, group.parent])
        counts.publish()
    journal.unlink()
    sync_folder(journal.parent)


def _append(
    group: Path,
    attempt: int,
    reader: JournalReader,
    entries: Sequence[Entry],
    before: Index | None,
    drafts: Drafts,
) -> Index:
    """Append the entries of one stream to its arrays; the index that will count them."""
    index, numbers = _extended(before, attempt, entries)
    columns = [_Appender(group, name, index, before, drafts) for name in COLUMNS]
    for row, entry in enumerate(entries, before.rows if before else 0):
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
        for column in columns:
            column.put(row, values[column.name])
    for column in columns:
        column.finish()
    return index


def _extended(
    before: Index | None, attempt: int, entries: Sequence[Entry]
) -> tuple[Index, dict[Layout, int]]:
    """The index after a fold, and the number of each layout."""
    old = before or Index(0, (), (), {})
    numbers = {layout: number for number, layout in enumerate(old.layouts)}
    for entry in entries:
        numbers.setdefault(entry.layout, len(numbers))
    index = Index(old.rows + len(entries), (*old.attempts, attempt), tuple(numbers), {})
    chunks = {}
    for name, column in COLUMNS.items():
        width = column.width or ""
        # An array without a width has no chunks yet, so they may still be chosen.
        if before is not None and (not width or before.widths[width]):
            chunks[name] = before.chunks[name]
        else:
            chunks[name] = column.chunk(index.rows, index.widths.get(width, 0))
    return replace(index, chunks=chunks), numbers


class _Appender:
    """Appends rows to one array, one band of chunks in memory at a time."""

    def __init__(
        self, group: Path, name: str, index: Index, before: Index | None, drafts: Drafts
    ) -> None:
        self.name = name
        self._group, self._index, self._before, self._drafts = group, index, before, drafts
        self._chunk = index.chunks[name]
        self._wide = bool(COLUMNS[name].width)
        self._dtype = numpy_dtype(COLUMNS[name].dtype)
        self._bytes = prod(self._chunk) * self._dtype.itemsize
        self._across = -(-index.shape(name)[1] // self._chunk[1]) if self._wide else 1
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
        """Write what is left and the array's metadata."""
        self._write()
        column = COLUMNS[self.name]
        shape = self._index.shape(self.name)
        metadata = array_metadata(column.dtype, shape, self._chunk, {}, column.dims)
        path = self._group / self.name / "zarr.json"
        write_file(self._drafts.add(path), metadata, sync=False)

    def _begin(self, band: int) -> None:
        self._band = band
        self._rows = [np.zeros(self._chunk, self._dtype) for _ in range(self._across)]
        before = self._before
        if before is None or band * self._chunk[0] >= before.rows:
            return
        filled = before.rows - band * self._chunk[0]
        across = -(-before.shape(self.name)[1] // self._chunk[1]) if self._wide else 1
        for number in range(across):
            path = chunk_file(self._group, self.name, band, number)
            kept = read_chunk(path, self._bytes).view(self._dtype).reshape(self._chunk)
            self._rows[number][:filled] = kept[:filled]

    def _write(self) -> None:
        for number, values in enumerate(self._rows):
            path = chunk_file(self._group, self.name, self._band, number)
            data = values.reshape(-1).view(np.uint8)
            write_chunk(self._drafts.add(path), data, self._bytes, sync=False)
        self._rows = []
