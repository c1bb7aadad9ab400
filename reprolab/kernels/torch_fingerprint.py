"""The fingerprint in torch operations, for tensors that live on a device.

Only the fingerprint itself is copied to the host. Digests are the same integers as on the host:
torch's int64 arithmetic wraps around modulo 2^64, and a logical shift is an arithmetic one with
the sign bits masked off. Sketches and moments agree to rounding. Nothing is added by atomic
operations, so the same tensor has the same sketch each time.
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
    per_block = block_bytes // ITEMSIZE[dtype]
    # Several blocks at once where all begin with a window.
    at_once = max(SPAN // per_block, 1) if per_block % int(WINDOW) == 0 else 1
    flat = tensor.detach().reshape(-1)
    place = 0
    for start in runs.starts.tolist():
        low, stop = start, start + runs.length
        while low < stop:
            row = low // per_block
            blocks = min((stop - low) // per_block, at_once) if low % per_block == 0 else 0
            high = low + blocks * per_block if blocks else min(stop, (row + 1) * per_block)
            piece = flat[place : place + high - low].reshape(max(blocks, 1), -1)
            _add(piece, low, high == runs.size, into.rows(slice(row, row + len(piece))))
            place += high - low
            low = high


def _add(piece: torch.Tensor, first: int, ends_tensor: bool, into: Fingerprint) -> None:
    """Add blocks, or a part of one; `piece` is [rows, elements of each]."""
    with np.errstate(all="ignore"):
        into.digest[...] += _digests(piece, first, ends_tensor)
        moments, sketch = _numbers(piece, first)
        seen = into.moments[:, COUNT] > 0
        low = np.where(seen, np.minimum(into.moments[:, MIN], moments[:, MIN]), moments[:, MIN])
        high = np.where(seen, np.maximum(into.moments[:, MAX], moments[:, MAX]), moments[:, MAX])
        into.moments[...] += moments
        into.moments[:, MIN], into.moments[:, MAX] = low, high
        into.sketch[...] += sketch


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ ((z >> 30) & _ones(34))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & _ones(37))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & _ones(33))


def _ones(bits: int) -> int:
    return (1 << bits) - 1


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _digests(piece: torch.Tensor, first: int, ends_tensor: bool) -> np.ndarray:
    torch = sys.modules["torch"]
    data = piece.view(torch.uint8)
    begin = first * piece.element_size()
    word = -(-begin // WORD)
    data = data[:, word * WORD - begin :]
    spare = data.shape[1] % WORD
    if spare and ends_tensor:
        data = torch.nn.functional.pad(data, (0, WORD - spare))
    elif spare:
        data = data[:, :-spare]
    data = data.reshape(-1)
    if data.data_ptr() % WORD or data.storage_offset() % WORD:
        data = data.clone()  # only memory that is aligned for words can be viewed as words
    words = data.view(torch.int64).view(len(piece), -1)
    index = torch.arange(word + 1, word + 1 + words.numel(), device=words.device)
    mixed = _mix(words + index.view(words.shape) * _signed(int(GOLDEN)))
    return mixed.sum(dim=1).cpu().numpy().view(np.uint64)


def _numbers(piece: torch.Tensor, first: int) -> tuple[np.ndarray, np.ndarray]:
    torch = sys.modules["torch"]
    numbers = piece.to(torch.float64)
    finite = torch.isfinite(numbers)
    valid = torch.where(finite, numbers, 0.0)
    moments = torch.stack(
        [
            torch.full_like(valid[:, 0], numbers.shape[1]),
            torch.isnan(numbers).sum(dim=1).to(torch.float64),
            torch.isinf(numbers).sum(dim=1).to(torch.float64),
            torch.where(finite, numbers, torch.inf).amin(dim=1),
            torch.where(finite, numbers, -torch.inf).amax(dim=1),
            valid.sum(dim=1),
            (valid * valid).sum(dim=1),
        ],
        dim=1,
    )

    window, lead = divmod(first, int(WINDOW))
    tail = -(lead + numbers.shape[1]) % int(WINDOW)
    valid = torch.nn.functional.pad(valid, (lead, tail)).view(len(piece), -1, int(WINDOW))
    windows = len(piece) * valid.shape[1]
    index = torch.arange(window + 1, window + 1 + windows, device=valid.device)
    mixed = _mix(index * _signed(int(GOLDEN)) + _signed(int(SKETCH_SALT))).view(*valid.shape[:2], 1)
    place = torch.arange(int(WINDOW), device=valid.device)
    signed = torch.where((mixed >> place) & 1 == 1, -valid, valid)
    # Lane l of a group takes the element whose column is l ^ x.
    shift = torch.where(place < LANES, 60, 56)
    source = (place % LANES ^ ((mixed >> shift) & _ones(4))) + place // LANES * LANES
    sketch = signed.gather(2, source).view(len(piece), -1, LANES).sum(dim=1)
    return moments.cpu().numpy(), sketch.cpu().numpy()
