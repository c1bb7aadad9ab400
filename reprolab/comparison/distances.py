"""How far apart tensors are, and in which way, from their fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprolab.kernels import Distance, Fingerprint, estimate
from reprolab.vocabulary import ITEMSIZE, MOMENTS, TensorSpec

_COUNT, _NAN, _INF, _SUMSQ = (MOMENTS.index(name) for name in ("count", "nan", "inf", "sumsq"))

APART, BELOW, NONFINITE, ABSENT_A, ABSENT_B, LAYOUT = range(6)
KINDS = (
    "apart",
    "below resolution",
    "non-finite",
    "absent in a",
    "absent in b",
    "layout",
)
"""How a tensor differs: by a measured distance; by less than the sketch resolves, so that the
distance is an upper bound; in the number of NaN or infinite elements; in being there at all; in
dtype or shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """How far apart tensors are; all arrays are [tensors]."""

    kind: np.ndarray
    """Numbers of KINDS, int8; meaningless where ``differs`` is false."""
    differs: np.ndarray
    distance: np.ndarray
    error: np.ndarray
    """Standard error of the distance."""
    relative: np.ndarray
    """Distance over the larger of both norms; infinite where the kind is non-finite."""
    squared: np.ndarray
    """Estimate of the squared distance, or its bound."""
    squared_error: np.ndarray
    norm: np.ndarray
    """Squared norm, the larger of both."""


def narrow_floats(specs: Sequence[TensorSpec]) -> np.ndarray:
    """Which tensors are floats of at most 16 bits, bool [tensors]: their sketches resolve less."""
    return np.array(["float" in spec.dtype and ITEMSIZE[spec.dtype] <= 2 for spec in specs], bool)


def apart(a: Fingerprint, b: Fingerprint, found: Distance) -> Apart:
    """Measure fingerprints against each other, row by row.

    Parameters
    ----------
    a, b : Fingerprint
        Of the same tensors or blocks.
    found : Distance
        Their distances.
    """
    here, there = a.moments, b.moments
    kind = np.full(len(a), APART, np.int8)
    kind[found.below_resolution] = BELOW
    kind[(here[:, _NAN] != there[:, _NAN]) | (here[:, _INF] != there[:, _INF])] = NONFINITE
    kind[(here[:, _COUNT] == 0) & (there[:, _COUNT] > 0)] = ABSENT_A
    kind[(here[:, _COUNT] > 0) & (there[:, _COUNT] == 0)] = ABSENT_B
    squared = np.where(found.below_resolution, found.floor, found.squared)
    norm = np.maximum(here[:, _SUMSQ], there[:, _SUMSQ])
    with np.errstate(all="ignore"):
        distance = np.sqrt(squared)
        error = np.where(distance > 0, found.error / (2 * distance), 0.0)
        relative = np.where(squared > 0, distance / np.sqrt(norm), 0.0)
    # Squares that leave float64 leave nothing to divide by.
    relative[(kind == NONFINITE) | np.isnan(relative)] = np.inf
    return Apart(kind, ~found.same, distance, error, relative, squared, found.error, norm)


def by_blocks(
    whole: Distance,
    rows: np.ndarray,
    starts: np.ndarray,
    a: Fingerprint,
    b: Fingerprint,
    narrow: np.ndarray,
) -> tuple[Distance, np.ndarray]:
    """Measure tensors of several blocks more finely, block by block.

    The estimates of blocks err independently, so that their sum errs less than that of a tensor's
    own sketch does.

    Parameters
    ----------
    whole : Distance
        Of tensors.
    rows : ndarray, int [tensors of several blocks]
        Which of them are measured again.
    starts : ndarray, int [tensors of several blocks]
        First row of each one's blocks in `a` and `b`.
    a, b : Fingerprint
        Blocks of these tensors, one tensor after the other.
    narrow : ndarray, bool [rows of blocks]
        Which of them are of narrow floats, see :func:`narrow_floats`.

    Returns
    -------
    Distance
        `whole` with these rows replaced.
    ndarray, int64 [tensors of several blocks]
        Blocks that differ.
    """
    part = estimate(a, b, narrow=narrow)
    squared, error, floor = (held.copy() for held in (whole.squared, whole.error, whole.floor))
    squared[rows] = np.add.reduceat(part.squared, starts)
    error[rows] = np.sqrt(np.add.reduceat(np.square(part.error), starts))
    floor[rows] = np.add.reduceat(part.floor, starts)
    found = replace(whole, squared=squared, error=error, floor=floor)
    return found, np.add.reduceat(~part.same, starts, dtype=np.int64)
