"""Elements one after another, and tensors strided over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from typing import Protocol

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.dtypes import numpy_dtype
from reprolab.formats.memory import reserve
from reprolab.formats.sources import Source
from reprolab.vocabulary import Region

_SCATTERED = 1 << 16
"""Elements that are read although not wanted, rather than to ask once more."""


class Elements(Protocol):
    """A flat sequence of elements of one dtype."""

    dtype: str
    """A key of ``vocabulary.ITEMSIZE``."""
    size: int
    """How many there are."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Elements ``[start, stop)`` as a fresh array."""

    def mapped(self) -> np.ndarray | None:
        """All elements as memory that is read when touched; None where there is none."""

    def forget(self, start: int, stop: int) -> None:
        """Give back the memory that touching a range of them took."""


class Stored:
    """Elements that lie in a source, little-endian."""

    def __init__(self, source: Source, dtype: str) -> None:
        self.dtype = dtype
        self._kind = numpy_dtype(dtype)
        self._source = source
        self.size = source.size // self._kind.itemsize

    def read(self, start: int, stop: int) -> np.ndarray:
        """A range of elements, by one read."""
        itemsize = self._kind.itemsize
        return self._source.read(start * itemsize, (stop - start) * itemsize).view(self._kind)

    def mapped(self) -> np.ndarray | None:
        """All elements."""
        mapped = self._source.mapped()
        return (
            None if mapped is None else mapped[: self.size * self._kind.itemsize].view(self._kind)
        )

    def forget(self, start: int, stop: int) -> None:
        """Give back a range."""
        itemsize = self._kind.itemsize
        self._source.forget(start * itemsize, (stop - start) * itemsize)


class Joined:
    """Elements of several sequences, one sequence after another."""

    def __init__(self, parts: Sequence[Elements]) -> None:
        if len({part.dtype for part in parts}) != 1:
            raise ValueError(f"parts must have one dtype; got {[part.dtype for part in parts]}")
        self.dtype = parts[0].dtype
        self._parts = parts
        self._starts = [0, *accumulate(part.size for part in parts)]
        self.size = self._starts[-1]

    def read(self, start: int, stop: int) -> np.ndarray:
        """A range of elements, by one read of each part it touches."""
        found = []
        place = start
        while place < stop:
            index = bisect_right(self._starts, place) - 1
            end = min(stop, self._starts[index + 1])
            origin = self._starts[index]
            found.append(self._parts[index].read(place - origin, end - origin))
            place = end
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, numpy_dtype(self.dtype))

    def mapped(self) -> None:
        """Nothing: the parts are not neighbours in memory."""
        return

    def forget(self, start: int, stop: int) -> None:
        """Nothing was taken."""


class Slice:
    """A range of another sequence."""

    def __init__(self, whole: Elements, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= whole.size:
            raise DamagedData(f"elements {start} to {stop} are needed, and there are {whole.size}")
        self.dtype = whole.dtype
        self.size = stop - start
        self._whole = whole
        self._start = start

    def read(self, start: int, stop: int) -> np.ndarray:
        """A range of elements."""
        return self._whole.read(self._start + start, self._start + stop)

    def mapped(self) -> np.ndarray | None:
        """The range of the whole's memory."""
        mapped = self._whole.mapped()
        return None if mapped is None else mapped[self._start : self._start + self.size]

    def forget(self, start: int, stop: int) -> None:
        """Give back the range of the whole."""
        self._whole.forget(self._start + start, self._start + stop)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


class Strided:
    """A tensor whose elements stand at regular distances in a sequence.

    Parameters
    ----------
    elements : Elements
        Where they stand.
    shape, strides : tuple of int
        Extents, and distances in elements; strides default to row-major order.
    offset : int
        Where the first element stands.

    Raises
    ------
    DamagedData
        Where the tensor reaches past its elements.
    """

    def __init__(
        self,
        elements: Elements,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.dtype = elements.dtype
        self.shape = shape
        self._elements = elements
        self._strides = row_major(shape) if strides is None else strides
        self._offset = offset
        if len(self._strides) != len(shape) or min((offset, *self._strides, *shape), default=0) < 0:
            raise DamagedData(
                f"a tensor of shape {shape} cannot have strides {self._strides} and offset {offset}"
            )
        if prod(shape) and offset + _span(shape, self._strides) > elements.size:
            raise DamagedData(
                f"a tensor of shape {shape} needs {offset + _span(shape, self._strides)} elements, "
                f"and {elements.size} are stored"
            )

    def flat(self) -> Elements:
        """The elements of a contiguous tensor, in order."""
        if not _is_row_major(self.shape, self._strides):
            raise DamagedData("a tensor that should be contiguous is not")
        return Slice(self._elements, self._offset, self._offset + prod(self.shape))

    @contextmanager
    def lent(self, start: int, stop: int) -> Iterator[np.ndarray | None]:
        """Elements ``[start, stop)`` in row-major order where they lie, without a copy.

        None where they do not lie in one piece of memory. What was lent must not be used later.
        """
        memory = self._elements.mapped() if _is_row_major(self.shape, self._strides) else None
        if memory is None or not memory.flags.aligned:
            yield None
            return
        start, stop = self._offset + start, self._offset + stop
        try:
            yield memory[start:stop]
        finally:
            self._elements.forget(start, stop)

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box, as a fresh contiguous array."""
        start = self._offset + sum(
            index * stride for index, stride in zip(region.offset, self._strides, strict=True)
        )
        nbytes = prod(region.shape) * numpy_dtype(self.dtype).itemsize
        reserve(nbytes, f"a region of shape {region.shape}")
        return _gather(self._elements, start, region.shape, self._strides)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last, both included, of a tensor that is not empty."""
    return 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))


def _gather(
    elements: Elements, start: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    wanted = prod(shape)
    if not wanted:
        return np.empty(shape, numpy_dtype(elements.dtype))
    span = _span(shape, strides)
    if span == wanted and _is_row_major(shape, strides):
        return elements.read(start, start + span).reshape(shape)
    memory = elements.mapped()
    if memory is None and span > max(2 * wanted, _SCATTERED):
        widest = max(range(len(shape)), key=lambda dim: (shape[dim] - 1) * strides[dim])
        found = np.empty(shape, numpy_dtype(elements.dtype))
        rest = (*shape[:widest], 1, *shape[widest + 1 :])
        for index in range(shape[widest]):
            place = (slice(None),) * widest + (slice(index, index + 1),)
            found[place] = _gather(elements, start + index * strides[widest], rest, strides)
        return found
    if memory is None:
        memory, start = elements.read(start, start + span), 0
    steps = [step * memory.itemsize for step in strides]
    # Over bytes, as not every dtype of ml_dtypes has a buffer; NumPy checks the bounds once more.
    held = memory[start : start + span].view(np.uint8)
    return np.ndarray(shape, memory.dtype, held.data, 0, steps).copy(order="C")


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = row_major(shape)
    return all(
        extent == 1 or step == wanted
        for extent, step, wanted in zip(shape, strides, expected, strict=True)
    )
