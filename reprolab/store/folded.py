"""Folded fingerprints: one Zarr group a rank and stream, arrays ``[row, block, ...]``.

A row is one step as one attempt recorded it; the arrays ``step``, ``attempt`` and ``layout`` say
which. Only the rows that the group's own attributes count are there: they are written last, so
rows of an interrupted fold are never seen and are simply written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from reprolab.errors import DamagedData
from reprolab.kernels import Fingerprint
from reprolab.store.arrays import numpy_dtype
from reprolab.store.chunks import read_chunk
from reprolab.store.grid import CHUNK_BYTES
from reprolab.store.layouts import layout_from, layout_record
from reprolab.store.records import FORMAT, check_format, checksum
from reprolab.vocabulary import ITEMSIZE, LANES, MOMENTS, Layout

ATTRIBUTE = "reprolab"
"""The attribute of a group that holds what this package says about it."""

_FEWEST_ROWS = 16
_MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a stream's group."""

    dtype: str
    width: str | None
    """``"block"``, ``"tensor"`` or nothing: what its second dim counts."""
    last: tuple[tuple[str, int], ...] = ()
    """Name and extent of its last dim, if it has a third."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its dims."""
        return ("row", *([self.width] if self.width else []), *(name for name, _ in self.last))

    def inner(self, width: int) -> tuple[int, ...]:
        """Extents of a row, where its second dim is `width` long."""
        return (*([width] if self.width else []), *(extent for _, extent in self.last))

    def chunk(self, rows: int, width: int) -> tuple[int, ...]:
        """Extents of a chunk, chosen when a group of `rows` rows is first written."""
        item = ITEMSIZE[self.dtype] * prod(extent for _, extent in self.last)
        across = max(1, min(width, CHUNK_BYTES // item))
        fitting = CHUNK_BYTES // (item * (across if self.width else 1))
        along = max(1, min(fitting, _MOST_ROWS, max(_FEWEST_ROWS, rows)))
        return (along, *self.inner(across))


COLUMNS: Mapping[str, Column] = {
    "step": Column("int64", None),
    "attempt": Column("int64", None),
    "layout": Column("int64", None),
    "stream_digest": Column("uint64", None),
    "tensor_digest": Column("uint64", "tensor"),
    "tensor_moments": Column("float64", "tensor", (("moment", len(MOMENTS)),)),
    "tensor_sketch": Column("float64", "tensor", (("lane", LANES),)),
    "digest": Column("uint64", "block"),
    "moments": Column("float64", "block", (("moment", len(MOMENTS)),)),
    "sketch": Column("float64", "block", (("lane", LANES),)),
}
"""All arrays of a stream's group."""


@dataclass(frozen=True, slots=True)
class Index:
    """What a stream's group says about itself."""

    rows: int
    attempts: tuple[int, ...]
    """Attempts whose journals are folded in."""
    layouts: tuple[Layout, ...]
    chunks: Mapping[str, tuple[int, ...]]
    """Extents of a chunk of each array."""

    @property
    def widths(self) -> dict[str, int]:
        """Largest number of blocks and of tensors in any layout."""
        return {
            "block": max((layout.rows for layout in self.layouts), default=0),
            "tensor": max((len(layout.tensors) for layout in self.layouts), default=0),
        }

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of an array."""
        column = COLUMNS[name]
        return (self.rows, *column.inner(self.widths.get(column.width or "", 0)))

    def attributes(self) -> dict[str, Any]:
        """Attributes of the group, with their checksum."""
        record = {
            "format": FORMAT,
            "rows": self.rows,
            "attempts": list(self.attempts),
            "layouts": [layout_record(layout) for layout in self.layouts],
            "chunks": {name: list(chunk) for name, chunk in self.chunks.items()},
            "moments": list(MOMENTS),
        }
        return {ATTRIBUTE: {**record, "crc": checksum(record)}}


def read_index(group: Path) -> Index | None:
    """What a stream's group says about itself; nothing if it was never written whole.

    Raises
    ------
    DamagedData
        If it does not check.
    """
    path = group / "zarr.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        record = json.loads(text)["attributes"][ATTRIBUTE]
        written = record.pop("crc")
        if checksum(record) != written:
            raise ValueError(f"its checksum is {checksum(record)}, and {written} was written")
        check_format(record["format"], path)
        return Index(
            record["rows"],
            tuple(record["attempts"]),
            tuple(map(layout_from, record["layouts"])),
            {name: tuple(record["chunks"][name]) for name in COLUMNS},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedData(f"the group's attributes are damaged: {error!r}", path=path) from error


def chunk_file(group: Path, name: str, band: int, across: int) -> Path:
    """File of one chunk: `band` counts chunks along the rows, `across` along the second dim."""
    place = (band, *(across for _ in [COLUMNS[name].width] if _), *(0 for _ in COLUMNS[name].last))
    return group / name / ".".join(("c", *map(str, place)))


class FoldedStream:
    """Reads one stream's group."""

    def __init__(self, group: Path, index: Index) -> None:
        self.group = group
        self.index = index
        self._near: dict[str, tuple[int, dict[int, np.ndarray]]] = {}

    def whole(self, name: str) -> np.ndarray:
        """All rows of one of the arrays that have a single dim."""
        bands = range(-(-self.index.rows // self.index.chunks[name][0]))
        empty = np.zeros(0, numpy_dtype(COLUMNS[name].dtype))
        return np.concatenate([empty, *(self._chunk(name, band, 0) for band in bands)])[
            : self.index.rows
        ]

    def fingerprint(self, row: int, layout: Layout) -> Fingerprint:
        """Block rows of one row."""
        return Fingerprint(
            self._row("digest", row, layout.rows),
            self._row("moments", row, layout.rows),
            self._row("sketch", row, layout.rows),
        )

    def tensor_row(self, name: str, row: int, layout: Layout) -> np.ndarray:
        """One row of a roll-up."""
        return self._row(name, row, len(layout.tensors))

    def _row(self, name: str, row: int, count: int) -> np.ndarray:
        """The first `count` of a row; chunks that the row does not reach may not exist."""
        along, wide, *last = self.index.chunks[name]
        pieces = [
            self._chunk(name, row // along, across)[row % along]
            for across in range(-(-count // wide))
        ]
        if not pieces:
            return np.zeros((0, *last), numpy_dtype(COLUMNS[name].dtype))
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:count]

    def _chunk(self, name: str, band: int, across: int) -> np.ndarray:
        # The chunks of one band are kept: the next row asked for is mostly a neighbour.
        kept, chunks = self._near.get(name, (-1, {}))
        if kept != band:
            chunks = {}
            self._near[name] = band, chunks
        if across not in chunks:
            shape = self.index.chunks[name]
            dtype = numpy_dtype(COLUMNS[name].dtype)
            data = read_chunk(
                chunk_file(self.group, name, band, across), prod(shape) * dtype.itemsize
            )
            chunks[across] = data.view(dtype).reshape(shape)
        return chunks[across]
