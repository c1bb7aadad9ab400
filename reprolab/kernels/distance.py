"""How far apart two tensors are, from their fingerprints alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.kernels.rows import COUNT, INF, NAN, SUMSQ, Fingerprint
from reprolab.vocabulary import LANES

FLOOR = 2.0**-100
"""Rounding of a sketch: squared, relative to (elements a lane) x (sum of squares)."""


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
    below_resolution: np.ndarray
    """The digests differ and the estimate is not above the floor: too close to tell, bool."""
    nonfinite: np.ndarray
    """NaN or Inf are in either side; they count as 0 in the estimate, bool."""

    def total(self) -> Distance:
        """All rows as one row; estimates add, their errors add in squares."""
        squared = self.squared.sum(keepdims=True)
        floor = self.floor.sum(keepdims=True)
        same = self.same.all(keepdims=True)
        return Distance(
            squared,
            np.sqrt(np.square(self.error).sum(keepdims=True)),
            floor,
            same,
            ~same & ~(squared > floor),
            self.nonfinite.any(keepdims=True),
        )


def estimate(a: Fingerprint, b: Fingerprint) -> Distance:
    """Estimate ``||a - b||^2`` of each row from the sketches.

    The estimate has no bias; its relative standard error is at most ``sqrt(2 / 16) = 0.35`` a
    row, and far less for a tensor of many rows that differ (:meth:`Distance.total`). Errors are
    those of a difference that was not made with knowledge of the hash.

    Parameters
    ----------
    a, b : Fingerprint
        Of the same tensors, row by row.

    Raises
    ------
    ValueError
        Where the numbers of rows differ.
    """
    if len(a) != len(b):
        raise ValueError(
            f"fingerprints of the same tensors have equally many rows; got {len(a)}, {len(b)}"
        )
    same = a.digest == b.digest
    with np.errstate(all="ignore"):
        squared = np.square(a.sketch - b.sketch).sum(axis=1)
        lane = np.maximum(a.moments[:, COUNT], b.moments[:, COUNT]) / LANES
        floor = FLOOR * np.maximum(lane, 1.0) * (a.moments[:, SUMSQ] + b.moments[:, SUMSQ])
        squared = np.where(same, 0.0, squared)
        floor = np.where(same, 0.0, floor)
        error = np.sqrt(2 / LANES) * squared
    special = [side.moments[:, NAN] + side.moments[:, INF] > 0 for side in (a, b)]
    return Distance(
        squared, error, floor, same, ~same & ~(squared > floor), special[0] | special[1]
    )
