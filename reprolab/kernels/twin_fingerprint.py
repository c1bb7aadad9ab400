"""The fingerprint in NumPy: oracle of the compiled kernel, and fallback where no compiler ran."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (teaches NumPy the names bfloat16 and float8_*)
import numpy as np

from reprolab.kernels.regions import WORD, Runs
from reprolab.kernels.rows import COUNT, MAX, MIN, Fingerprint
from reprolab.vocabulary import ITEMSIZE, LANES

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: what the word index is multiplied by."""

SKETCH_SALT = np.uint64(0x243F6A8885A308D3)
"""The first 64 binary digits of pi's fraction: what is mixed to place a window in the sketch."""

WINDOW = np.uint64(32)
"""Elements whose lanes and signs in the sketch come from one mixed word."""


def mix(word: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What a word adds to the digest, uint64; all arithmetic is modulo 2^64."""
    z = word + (index + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def accumulate(
    data: np.ndarray, dtype: str, runs: Runs, block_bytes: int, into: Fingerprint
) -> None:
    """Add a tensor or a shard to its rows, except for the words it covers only in part.

    Parameters
    ----------
    data : ndarray, uint8 [nbytes]
        Its bytes.
    dtype : str
        A key of ``vocabulary.ITEMSIZE``.
    runs : Runs
        Where the elements stand in the whole tensor.
    block_bytes : int
        Size of a block in bytes.
    into : Fingerprint
        All rows of the whole tensor; changed in place.
    """
    itemsize = ITEMSIZE[dtype]
    per_block = block_bytes // itemsize
    place = 0
    for start in runs.starts.tolist():
        stop = start + runs.length
        for row in range(start // per_block, -(-stop // per_block)):
            low = max(start, row * per_block)
            high = min(stop, (row + 1) * per_block)
            piece = data[place : place + (high - low) * itemsize]
            place += len(piece)
            with np.errstate(all="ignore"):
                into.digest[row] += _digest(piece, low * itemsize, high == runs.size)
                _add_numbers(piece.view(dtype), low, into, row)


def _digest(data: np.ndarray, begin: int, ends_tensor: bool) -> np.uint64:
    first = -(-begin // WORD)
    data = data[first * WORD - begin :]
    spare = len(data) % WORD
    if spare and ends_tensor:
        data = np.concatenate([data, np.zeros(WORD - spare, np.uint8)])
    elif spare:
        data = data[:-spare]
    words = np.frombuffer(data.tobytes(), np.uint64)
    index = np.arange(first, first + len(words), dtype=np.uint64)
    return mix(words, index).sum(dtype=np.uint64)


def _add_numbers(elements: np.ndarray, first: int, into: Fingerprint, row: int) -> None:
    numbers = elements.astype(np.float64)
    finite = np.isfinite(numbers)
    nan = np.count_nonzero(np.isnan(numbers))
    valid = numbers[finite]
    inf = len(numbers) - len(valid) - nan
    moments = into.moments[row]
    seen = moments[COUNT] > 0
    low = valid.min(initial=moments[MIN] if seen else np.inf)
    high = valid.max(initial=moments[MAX] if seen else -np.inf)
    moments += (len(numbers), nan, inf, 0.0, 0.0, valid.sum(), np.square(valid).sum())
    moments[MIN], moments[MAX] = low, high
    into.sketch[row] += _sketch(np.where(finite, numbers, 0.0), first)


def _sketch(numbers: np.ndarray, first: int) -> np.ndarray:
    position = np.arange(first, first + len(numbers), dtype=np.uint64)
    window, place = position // WINDOW, position % WINDOW
    windows = np.arange(window[0], window[-1] + np.uint64(1), dtype=np.uint64)
    mixed = mix(np.full(len(windows), SKETCH_SALT), windows)[window - window[0]]
    negative = mixed >> place & np.uint64(1)
    shift = np.where(place < LANES, np.uint64(60), np.uint64(56))
    lane = (place ^ mixed >> shift) % np.uint64(LANES)
    signed = np.where(negative == 1, -numbers, numbers)
    return np.bincount(lane.astype(np.intp), weights=signed, minlength=LANES)
