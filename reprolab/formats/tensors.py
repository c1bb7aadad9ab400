"""Tensors as they lie in a checkpoint: each knows its dtype and shape and reads boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Protocol

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.dtypes import numpy_dtype
from reprolab.formats.memory import reserve
from reprolab.vocabulary import Region


class StoredTensor(Protocol):
    """One tensor of a checkpoint, wherever its bytes are."""

    dtype: str
    """A key of ``vocabulary.ITEMSIZE``."""
    shape: tuple[int, ...]
    """Global shape."""

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box inside the shape, contiguous, reading only what it needs."""


def boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Region]:
    """Boxes that hold the elements ``[start, stop)`` of a row-major tensor, in order.

    Examples
    --------
    >>> [box.shape for box in boxes((4, 5), 3, 17)]
    [(1, 2), (2, 5), (1, 2)]
    """
    if start >= stop:
        return
    if not shape:
        yield Region((), ())
        return
    inner = prod(shape[1:])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        yield from _under(first, boxes(shape[1:], head, tail))
        return
    if head:
        yield from _under(first, boxes(shape[1:], head, inner))
        first += 1
    if first < last:
        yield Region((first, *(0 for _ in shape[1:])), (last - first, *shape[1:]))
    if tail:
        yield from _under(last, boxes(shape[1:], 0, tail))


def _under(index: int, found: Iterator[Region]) -> Iterator[Region]:
    for box in found:
        yield Region((index, *box.offset), (1, *box.shape))


class InMemory:
    """A tensor that the file's own header holds."""

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        self.dtype = dtype
        self.shape = array.shape
        self._array = array.astype(numpy_dtype(dtype), copy=False)

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box."""
        place = tuple(slice(a, a + n) for a, n in zip(region.offset, region.shape, strict=True))
        return self._array[place].copy(order="C")


class Mosaic:
    """A tensor put together from boxes that different files hold.

    Parameters
    ----------
    dtype : str
        A key of ``vocabulary.ITEMSIZE``.
    shape : tuple of int
        Global shape.
    pieces : sequence of (Region, StoredTensor)
        Which box each piece is.

    Raises
    ------
    DamagedData
        Where the pieces do not cover the tensor, each element once.
    """

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        pieces: Sequence[tuple[Region, StoredTensor]],
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        held = [(region, tensor) for region, tensor in pieces if prod(region.shape)]
        self._pieces = [tensor for _, tensor in held]
        dims = (len(held), len(shape))
        self._begin = np.array([region.offset for region, _ in held], np.int64).reshape(dims)
        self._end = self._begin + np.array([region.shape for region, _ in held], np.int64).reshape(
            dims
        )
        self._check()

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box, from each piece that it overlaps."""
        kind = numpy_dtype(self.dtype)
        reserve(prod(region.shape) * kind.itemsize, f"a region of shape {region.shape}")
        found = np.empty(region.shape, kind)
        origin = np.array(region.offset, np.int64)
        begin = np.maximum(self._begin, origin)
        end = np.minimum(self._end, origin + np.array(region.shape, np.int64))
        for index in np.flatnonzero((begin < end).all(axis=1)).tolist():
            low, high = begin[index], end[index]
            part = Region(tuple((low - self._begin[index]).tolist()), tuple((high - low).tolist()))
            place = tuple(
                slice(a, b)
                for a, b in zip((low - origin).tolist(), (high - origin).tolist(), strict=True)
            )
            found[place] = self._pieces[index].read(part)
        return found

    def _check(self) -> None:
        for tensor in self._pieces:
            if tensor.dtype != self.dtype:
                raise DamagedData(f"a piece is {tensor.dtype} and the tensor is {self.dtype}")
        if (self._begin < 0).any() or (self._end > np.array(self.shape, np.int64)).any():
            raise DamagedData(f"a piece reaches out of the tensor's shape {self.shape}")
        covered = sum(prod(extent) for extent in (self._end - self._begin).tolist())
        if covered != prod(self.shape):
            raise DamagedData(
                f"the pieces hold {covered} elements and the shape {self.shape} has "
                f"{prod(self.shape)}; the checkpoint is incomplete"
            )
        if self._overlapping():
            raise DamagedData("two pieces hold the same elements")

    def _overlapping(self) -> bool:
        if len(self._pieces) < 2 or not self.shape:
            return len(self._pieces) > 1
        # Sweep along the dim that tells most pieces apart, so that few are open at once.
        dim = max(range(len(self.shape)), key=lambda d: len(np.unique(self._begin[:, d])))
        opened: list[int] = []
        for index in np.argsort(self._begin[:, dim], kind="stable").tolist():
            opened = [other for other in opened if self._end[other, dim] > self._begin[index, dim]]
            if opened:
                low = np.maximum(self._begin[opened], self._begin[index])
                high = np.minimum(self._end[opened], self._end[index])
                if (low < high).all(axis=1).any():
                    return True
            opened.append(index)
        return False
