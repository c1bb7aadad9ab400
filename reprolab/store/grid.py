"""How an array is cut into chunks: each one a contiguous range of the row-major elements.

A chunk takes whole rows where a row fits into it, otherwise whole rows of a row, and so on; so it
is written from memory as it lies there, and a block is read from few chunks. Chunks are about
4 MiB and as even as possible, because Zarr stores a chunk at the edge in full size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

CHUNK_BYTES = 4 << 20
"""Largest chunk."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The chunks of one array.

    Examples
    --------
    >>> grid = Grid.fit((5, 3), itemsize=4, limit=24)
    >>> grid.chunk, grid.counts
    ((2, 3), (3, 1))
    >>> grid.key(2), grid.elements(2)
    ('c.2.0', range(12, 15))
    """

    shape: tuple[int, ...]
    """Extents of the array."""
    chunk: tuple[int, ...]
    """Extents of a chunk: ones, then a part of one dim, then whole dims."""

    def __post_init__(self) -> None:
        split = self._split
        if len(self.chunk) != len(self.shape) or any(extent < 1 for extent in self.chunk):
            raise ValueError(f"chunk {self.chunk} does not cut shape {self.shape}")
        if any(extent != 1 for extent in self.chunk[:split]) or any(
            part != max(1, whole)
            for part, whole in zip(self.chunk[split + 1 :], self.shape[split + 1 :], strict=True)
        ):
            raise ValueError(f"chunks {self.chunk} of shape {self.shape} are not contiguous")

    @classmethod
    def fit(cls, shape: tuple[int, ...], itemsize: int, limit: int = CHUNK_BYTES) -> Grid:
        """The grid whose chunks hold as many whole rows as fit in `limit` bytes, evenly."""
        if 0 in shape:
            return cls(shape, tuple(max(1, extent) for extent in shape))
        for dim, extent in enumerate(shape):
            inner = prod(shape[dim + 1 :]) * itemsize
            if inner <= limit:
                pieces = -(-extent // (limit // inner))
                return cls(shape, (1,) * dim + (-(-extent // pieces),) + shape[dim + 1 :])
        return cls(shape, shape)

    @property
    def _split(self) -> int:
        """The dim that is cut in parts; all before it are cut in ones."""
        for dim, extent in enumerate(self.chunk):
            if extent != 1:
                return dim
        return max(0, len(self.chunk) - 1)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each dim."""
        return tuple(
            -(-extent // part) for extent, part in zip(self.shape, self.chunk, strict=True)
        )

    @property
    def size(self) -> int:
        """Number of chunks."""
        return prod(self.counts)

    @property
    def chunk_size(self) -> int:
        """Number of elements of a chunk as stored; at the edge it is padded to this."""
        return prod(self.chunk)

    def index(self, number: int) -> tuple[int, ...]:
        """Position of a chunk in the grid; chunks are numbered in row-major order."""
        place = []
        for count in reversed(self.counts):
            number, along = divmod(number, count)
            place.append(along)
        return tuple(reversed(place))

    def key(self, number: int) -> str:
        """Name of a chunk's file."""
        return ".".join(("c", *map(str, self.index(number))))

    def elements(self, number: int) -> range:
        """Row-major elements of the array that a chunk holds."""
        if not self.shape:
            return range(1)
        split, index = self._split, self.index(number)
        inner = prod(self.shape[split + 1 :])
        start = 0
        for dim in range(split):
            start = start * self.shape[dim] + index[dim]
        row = index[split] * self.chunk[split]
        rows = min(self.chunk[split], self.shape[split] - row)
        start = (start * self.shape[split] + row) * inner
        return range(start, start + rows * inner)

    def overlapping(self, start: int, stop: int) -> range:
        """Numbers of the chunks that hold any of the row-major elements of a range.

        Chunks follow each other in memory in the order of their numbers.
        """
        stop = min(stop, prod(self.shape))
        if start >= stop:
            return range(0)
        return range(self._holding(start), self._holding(stop - 1) + 1)

    def _holding(self, element: int) -> int:
        if not self.shape:
            return 0
        split = self._split
        line, within = divmod(element, prod(self.shape[split:]))
        row = within // prod(self.shape[split + 1 :])
        return line * self.counts[split] + row // self.chunk[split]
