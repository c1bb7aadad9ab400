"""How far apart two tensors are, from their fingerprints alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.kernels.rows import COUNT, INF, NAN, SUMSQ, Fingerprint
from reprolab.vocabulary import ITEMSIZE, LANES, Layout

WIDE_FLOOR = 2.0**-100
"""Square of what rounding does to a sketch, relative to (elements a lane) x (sum of squares)."""

NARROW_FLOOR = 2.0**-44
"""The same relative to the sum of squares, for floats of at most 16 bits: kernels may sum these
in float32 for a while."""


@dataclass(frozen=True, slots=True, eq=False)
class Distance:
    """Estimates of ``||a - b||^2``, one a row; all arrays are [rows]."""

    squared: np.ndarray
    """The estimate, float64. Exactly 0 where the digests agree."""
    error: np.ndarray
    """Its standard error, float64."""
    floor: np.ndarray
    """The largest value that rounding alone can bring about, float64."""
    same: np.ndarray
    """The digests agree, bool."""
    nonfinite: np.ndarray
    """NaN or Inf are in either side; they count as 0 in the estimate, bool."""

    @property
    def below_resolution(self) -> np.ndarray:
        """The digests differ and the estimate is not above the floor: too close to tell, bool."""
        return ~self.same & ~(self.squared > self.floor)

    def total(self) -> Distance:
        """All rows as one row; estimates add, their errors add in squares."""
        return Distance(
            self.squared.sum(keepdims=True),
            np.sqrt(np.square(self.error).sum(keepdims=True)),
            self.floor.sum(keepdims=True),
            np.array([self.same.all()]),
            np.array([self.nonfinite.any()]),
        )


def estimate(a: Fingerprint, b: Fingerprint, *, narrow: bool | np.ndarray = False) -> Distance:
    """Estimate ``||a - b||^2`` of each row from the sketches.

    The estimate has no bias; its relative standard error is at most ``sqrt(2 / 16) = 0.35`` a
    row, and far less for a tensor of many rows that differ (:meth:`Distance.total`). Errors are
    those of a difference that was not made with knowledge of the hash.

    Parameters
    ----------
    a, b : Fingerprint
        Of the same tensors, row by row.
    narrow : bool or ndarray, bool [rows]
        Rows of floats of at most 16 bits, whose floor is higher; see :func:`narrow_rows`.

    Raises
    ------
    ValueError
        Where the numbers of rows differ.
    """
    if len(a) != len(b):
        raise ValueError(
            f"fingerprints of the same tensors have equally many rows; got {len(a)} and {len(b)}"
        )
    same = a.digest == b.digest
    with np.errstate(all="ignore"):
        squared = np.square(a.sketch - b.sketch).sum(axis=1)
        lane = np.maximum(a.moments[:, COUNT], b.moments[:, COUNT]) / LANES
        relative = WIDE_FLOOR * np.maximum(lane, 1.0) + np.where(narrow, NARROW_FLOOR, 0.0)
        floor = relative * (a.moments[:, SUMSQ] + b.moments[:, SUMSQ])
    special = [side.moments[:, NAN] + side.moments[:, INF] > 0 for side in (a, b)]
    squared = np.where(same, 0.0, squared)
    return Distance(
        squared,
        np.sqrt(2 / LANES) * squared,
        np.where(same, 0.0, floor),
        same,
        special[0] | special[1],
    )


def narrow_rows(layout: Layout) -> np.ndarray:
    """Rows of a stream that are floats of at most 16 bits, bool [rows]."""
    narrow = ["float" in spec.dtype and ITEMSIZE[spec.dtype] <= 2 for spec in layout.tensors]
    return np.repeat(np.array(narrow, bool), np.diff(layout.starts))
