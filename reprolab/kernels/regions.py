"""Where the elements of a shard stand in the whole tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from reprolab.vocabulary import Region

WORD = 8
"""Bytes of a word of the digest."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A shard as stretches of elements that are neighbours in the whole tensor.

    In the shard's own memory the stretches follow one another.
    """

    starts: np.ndarray
    """Global index of each stretch's first element, int64 [runs], ascending."""
    length: int
    """Elements of each stretch."""
    size: int
    """Elements of the whole tensor."""


def whole(size: int) -> Runs:
    """The one run of a tensor that is not sharded."""
    return Runs(np.zeros(1, np.int64), size, size)


def runs(shape: tuple[int, ...], region: Region) -> Runs:
    """Runs of a region of a tensor of the global `shape`.

    Raises
    ------
    ValueError
        Where the region is not inside the tensor.
    """
    ends = tuple(a + b for a, b in zip(region.offset, region.shape, strict=True))
    if len(ends) != len(shape) or any(
        end > extent for end, extent in zip(ends, shape, strict=True)
    ):
        raise ValueError(f"a region must lie inside the tensor's shape {shape}; got {region}")
    size = prod(shape)
    if not prod(region.shape):
        return Runs(np.zeros(0, np.int64), 0, size)
    inner = len(shape)
    length = 1
    while inner and length == prod(shape[inner:]):
        inner -= 1
        length *= region.shape[inner]
    starts = np.zeros(1, np.int64)
    for dim, extent in enumerate(shape):
        steps = region.offset[dim] + np.arange(region.shape[dim] if dim < inner else 1)
        starts = (starts[:, None] * extent + steps[None, :]).reshape(-1)
    return Runs(starts, length, size)


def overlap(a: Region, b: Region) -> bool:
    """Whether two boxes share an element."""
    return all(
        max(start_a, start_b) < min(start_a + extent_a, start_b + extent_b)
        for start_a, extent_a, start_b, extent_b in zip(
            a.offset, a.shape, b.offset, b.shape, strict=True
        )
    )


def cut_words(
    take: Callable[[np.ndarray], np.ndarray], runs: Runs, itemsize: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The words that a shard's runs cover only in part.

    Parameters
    ----------
    take : callable
        Gives the shard's bytes at given places, uint8.
    runs : Runs
        Where they belong.
    itemsize : int
        Bytes of an element.

    Returns
    -------
    index : ndarray, uint64 [words]
    mask : ndarray, uint8 [words]
    word : ndarray, uint64 [words]
        As in :class:`reprolab.kernels.rows.Border`.
    """
    nbytes = runs.size * itemsize
    begin = runs.starts * itemsize
    end = begin + runs.length * itemsize
    first, last = begin // WORD, (end - 1) // WORD
    cut_end = (end % WORD != 0) & (end != nbytes)
    head = (begin % WORD != 0) | (cut_end & (first == last))
    tail = cut_end & (first != last)
    which = np.concatenate([np.flatnonzero(head), np.flatnonzero(tail)])
    index = np.concatenate([first[head], last[tail]])

    byte = index[:, None] * WORD + np.arange(WORD)
    mine = (byte >= begin[which, None]) & (byte < end[which, None])
    place = (which * (runs.length * itemsize) - begin[which])[:, None] + byte
    content = np.zeros(byte.shape, np.uint8)
    content[mine] = take(place[mine])
    present = np.packbits(mine | (byte >= nbytes), axis=1, bitorder="little")[:, 0]
    return unite(index.astype(np.uint64), present, content.view(np.uint64)[:, 0])


def unite(
    index: np.ndarray, mask: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bring pieces of the same word together; only padding may be in several of them."""
    order = np.argsort(index, kind="stable")
    index, mask, word = index[order], mask[order], word[order]
    if not len(index):
        return index, mask, word
    at = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    return index[at], np.bitwise_or.reduceat(mask, at), np.bitwise_or.reduceat(word, at)
