"""Fingerprints as values: rows of blocks that add up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.vocabulary import LANES, MOMENTS, Region

COUNT, NAN, INF, MIN, MAX, SUM, SUMSQ = range(len(MOMENTS))
"""Columns of the moments."""


@dataclass(frozen=True, slots=True, eq=False)
class Border:
    """What a part of a tensor must remember until the other parts arrive.

    A 64-bit word that two shards share cannot be mixed in parts, so each keeps the bytes it has.
    """

    index: np.ndarray
    """Global word indices, uint64 [words], ascending, each once."""
    mask: np.ndarray
    """Bytes present, uint8 [words]; bit b stands for byte b of the word. Padding is present."""
    word: np.ndarray
    """Words with absent bytes zero, uint64 [words]."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    dtype: str
    """Its dtype, a key of :data:`reprolab.vocabulary.ITEMSIZE`."""
    block_bytes: int
    """Size of a block."""
    regions: tuple[Region, ...]
    """The boxes seen so far; disjoint."""


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """Digest, moments and sketch of blocks; row r is one block.

    A block nobody has seen, and every block of an absent tensor, is a row of zeros.
    """

    digest: np.ndarray
    """uint64 [rows]."""
    moments: np.ndarray
    """float64 [rows, 7], columns :data:`reprolab.vocabulary.MOMENTS`; minimum +inf and maximum
    -inf where there are elements and none is finite."""
    sketch: np.ndarray
    """float64 [rows, 16]."""
    border: Border | None = None
    """What is still open, when this covers only a part of a tensor."""

    def __post_init__(self) -> None:
        rows = len(self.digest)
        found = (self.digest.shape, self.moments.shape, self.sketch.shape)
        if found != ((rows,), (rows, len(MOMENTS)), (rows, LANES)):
            raise ValueError(
                f"expected digest [n], moments [n, {len(MOMENTS)}] and sketch [n, {LANES}]; "
                f"got {found}"
            )

    def __len__(self) -> int:
        return len(self.digest)

    @classmethod
    def zeros(cls, rows: int) -> Fingerprint:
        """Rows of nothing, ready to be filled."""
        return cls(
            np.zeros(rows, np.uint64), np.zeros((rows, len(MOMENTS))), np.zeros((rows, LANES))
        )

    def rows(self, index: slice) -> Fingerprint:
        """The blocks at `index`, as views."""
        return Fingerprint(self.digest[index], self.moments[index], self.sketch[index])

    def total(self) -> Fingerprint:
        """All rows as one row: digests and sketches summed, moments combined."""
        with np.errstate(over="ignore", invalid="ignore"):
            return Fingerprint(
                self.digest.sum(dtype=np.uint64, keepdims=True),
                combine(self.moments[:, None, :]),
                self.sketch.sum(axis=0, keepdims=True),
            )


def combine(moments: np.ndarray) -> np.ndarray:
    """Moments of unions; sums beyond the range of float64 become infinite.

    Parameters
    ----------
    moments : ndarray, float64 [parts, rows, 7]
        Parts without elements are rows of zeros.

    Returns
    -------
    ndarray, float64 [rows, 7]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = moments.sum(axis=0)
    seen = moments[..., COUNT] > 0
    minimum = np.where(seen, moments[..., MIN], np.inf).min(axis=0, initial=np.inf)
    maximum = np.where(seen, moments[..., MAX], -np.inf).max(axis=0, initial=-np.inf)
    whole[:, MIN] = np.where(whole[:, COUNT] > 0, minimum, 0.0)
    whole[:, MAX] = np.where(whole[:, COUNT] > 0, maximum, 0.0)
    return whole
