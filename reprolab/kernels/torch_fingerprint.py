"""The fingerprint in torch operations, for tensors that live on a device.

Only the fingerprint itself is copied to the host. Digests are the same integers as on the host:
torch's int64 arithmetic wraps around modulo 2^64, and the logical shifts of the mix are arithmetic
shifts with the sign bits masked off. Sketches and moments agree to rounding.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from reprolab.kernels.regions import WORD, Runs
from reprolab.kernels.rows import COUNT, MAX, MIN, Fingerprint
from reprolab.kernels.twin_fingerprint import GOLDEN, SKETCH_SALT, WINDOW
from reprolab.vocabulary import ITEMSIZE, LANES

if TYPE_CHECKING:
    import torch

SPAN = 1 << 22
"""Elements handled at once, so that temporary tensors stay at some hundred MiB."""


def accumulate(
    tensor: torch.Tensor, dtype: str, runs: Runs, block_bytes: int, into: Fingerprint
) -> None:
    """Add a tensor or a shard to its rows, except for the words it covers only in part.

    Parameters
    ----------
    tensor : torch.Tensor
        Contiguous, on any device.
    dtype : str
        A key of ``vocabulary.ITEMSIZE``.
    runs : Runs
        Where the elements stand in the whole tensor.
    block_bytes : int
        Size of a block in bytes.
    into : Fingerprint
        All rows of the whole tensor, on the host; changed in place.
    """
    torch = sys.modules["torch"]
    itemsize = ITEMSIZE[dtype]
    per_block = block_bytes // itemsize
    flat = tensor.reshape(-1)
    data = flat.view(torch.uint8)
    span = max(SPAN // per_block, 1) * per_block
    place = 0
    for start in runs.starts.tolist():
        stop = start + runs.length
        low = start
        while low < stop:
            high = min(stop, (low // span + 1) * span)
            width = high - low
            piece = data[place * itemsize : (place + width) * itemsize]
            row = low // per_block
            rows = slice(row, -(-high // per_block))
            with np.errstate(all="ignore"):
                into.digest[rows] += _digest(
                    piece, low * itemsize, high == runs.size, row * block_bytes, block_bytes
                )
            _add_numbers(flat[place : place + width], low, per_block, into.rows(rows))
            place += width
            low = high


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ ((z >> 30) & _ones(34))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & _ones(37))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & _ones(33))


def _ones(bits: int) -> int:
    return (1 << bits) - 1


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _digest(
    data: torch.Tensor, begin: int, ends_tensor: bool, base: int, block_bytes: int
) -> np.ndarray:
    torch = sys.modules["torch"]
    first = -(-begin // WORD)
    data = data[first * WORD - begin :]
    spare = len(data) % WORD
    if spare and ends_tensor:
        data = torch.nn.functional.pad(data, (0, WORD - spare))
    elif spare:
        data = data[:-spare]
    # A view as words needs their alignment, which a shard's bytes need not have.
    if data.data_ptr() % WORD or data.storage_offset() % WORD:
        data = data.clone()
    words = data.view(torch.int64)
    index = torch.arange(first, first + len(words), dtype=torch.int64, device=data.device)
    mixed = _mix(words + (index + 1) * _signed(int(GOLDEN)))
    rows = (index * WORD - base) // block_bytes
    count = -(-(begin + spare + len(words) * WORD - base) // block_bytes)
    total = torch.zeros(max(count, 1), dtype=torch.int64, device=data.device)
    total.index_add_(0, rows, mixed)
    return total.cpu().numpy().view(np.uint64)


def _add_numbers(elements: torch.Tensor, first: int, per_block: int, into: Fingerprint) -> None:
    torch = sys.modules["torch"]
    numbers = elements.to(torch.float64)
    finite = torch.isfinite(numbers)
    valid = torch.where(finite, numbers, 0.0)
    position = torch.arange(first, first + len(numbers), device=numbers.device)
    row = position // per_block - first // per_block
    count = len(into)

    window, place = position // int(WINDOW), position % int(WINDOW)
    mixed = _mix((window + 1) * _signed(int(GOLDEN)) + _signed(int(SKETCH_SALT)))
    lane = (place ^ (mixed >> torch.where(place < LANES, 60, 56))) % LANES
    signed = torch.where((mixed >> place) & 1 == 1, -valid, valid)
    sketch = torch.zeros(count * LANES, dtype=torch.float64, device=numbers.device)
    sketch.index_add_(0, row * LANES + lane, signed)
    into.sketch[...] += sketch.view(count, LANES).cpu().numpy()

    columns = torch.stack(
        [
            torch.ones_like(valid),
            torch.isnan(numbers).to(torch.float64),
            torch.isinf(numbers).to(torch.float64),
            torch.zeros_like(valid),
            torch.zeros_like(valid),
            valid,
            valid * valid,
        ],
        dim=1,
    )
    sums = torch.zeros(count, columns.shape[1], dtype=torch.float64, device=numbers.device)
    sums.index_add_(0, row, columns)
    low = torch.full((count,), torch.inf, dtype=torch.float64, device=numbers.device)
    high = -low
    low.scatter_reduce_(0, row, torch.where(finite, numbers, torch.inf), "amin")
    high.scatter_reduce_(0, row, torch.where(finite, numbers, -torch.inf), "amax")

    seen = into.moments[:, COUNT] > 0
    old_low = np.where(seen, into.moments[:, MIN], np.inf)
    old_high = np.where(seen, into.moments[:, MAX], -np.inf)
    into.moments[...] += sums.cpu().numpy()
    into.moments[:, MIN] = np.minimum(old_low, low.cpu().numpy())
    into.moments[:, MAX] = np.maximum(old_high, high.cpu().numpy())
