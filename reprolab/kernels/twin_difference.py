"""The difference in NumPy: oracle of the compiled kernel, and fallback where no compiler ran."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes  # noqa: F401  (teaches NumPy the names bfloat16 and float8_*)
import numpy as np

from reprolab.vocabulary import ITEMSIZE

CLASSES = 67
"""Classes of ULP distances: 0; 2^k to 2^(k+1) - 1 for k = 0..63; sign flip; NaN."""

SIGN_FLIP, NAN = CLASSES - 2, CLASSES - 1

CHUNK = 1 << 18
"""Elements handled at once, so that temporary arrays stay in the cache."""


@dataclass(slots=True)
class Tally:
    """Sums over the elements seen so far; meaning as in ``difference.Difference``."""

    differing: int = 0
    beyond: int = 0
    first: int = -1
    max_abs: float = 0.0
    max_ulp: int = 0
    sum_sq_diff: float = 0.0
    sum_sq_a: float = 0.0
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(CLASSES, np.int64))


def tally(a: np.ndarray, b: np.ndarray, dtype: str, atol: float, rtol: float) -> Tally:
    """Compare two buffers element by element.

    Parameters
    ----------
    a, b : ndarray, uint8 [nbytes]
        Their bytes.
    dtype : str
        A key of ``vocabulary.ITEMSIZE``.
    atol, rtol : float
        Tolerances of ``beyond``.
    """
    total = Tally()
    step = CHUNK * ITEMSIZE[dtype]
    for start in range(0, len(a), step):
        with np.errstate(all="ignore"):
            _add(total, a[start : start + step], b[start : start + step], dtype, atol, rtol, start)
    if "float" in dtype and ITEMSIZE[dtype] <= 4:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(total.max_abs))
        total.max_abs = rounded if np.isfinite(rounded) else total.max_abs
    return total


def _add(
    total: Tally, a: np.ndarray, b: np.ndarray, dtype: str, atol: float, rtol: float, start: int
) -> None:
    itemsize = ITEMSIZE[dtype]
    unsigned = np.dtype(f"u{itemsize}")
    bits_a, bits_b = a.view(unsigned), b.view(unsigned)
    differs = bits_a != bits_b
    if total.first < 0 and differs.any():
        total.first = start // itemsize + int(np.argmax(differs))
    total.differing += int(np.count_nonzero(differs))

    x, y = a.view(dtype), b.view(dtype)
    p, q = x.astype(np.float64), y.astype(np.float64)
    floating = "float" in dtype
    if floating:
        nan_a, nan_b = np.isnan(p), np.isnan(q)
        inf = (np.isinf(p) | np.isinf(q)) & ~nan_a & ~nan_b & (p != q)
        ulp, sign = _float_ulp(bits_a, bits_b)
        gap = np.abs(p - q)
    else:
        nan_a = nan_b = inf = sign = np.zeros(len(p), bool)
        ulp = _integer_gap(x, y)
        gap = ulp.astype(np.float64)
    nan = nan_a | nan_b
    finite = np.isfinite(p) & np.isfinite(q)
    far = finite & (gap > atol + rtol * np.abs(q))
    total.beyond += int(np.count_nonzero(far | (nan_a != nan_b) | inf))
    total.max_abs = max(total.max_abs, float(gap[finite].max(initial=0.0)))
    total.max_ulp = max(total.max_ulp, int(ulp[~nan].max(initial=0)))
    total.sum_sq_diff += float(np.square(gap[finite]).sum())
    total.sum_sq_a += float(np.square(p[np.isfinite(p)]).sum())
    total.nan_mismatch += int(np.count_nonzero(nan_a != nan_b))
    total.inf_mismatch += int(np.count_nonzero(inf))

    kind = np.where(nan, NAN, np.where(sign, SIGN_FLIP, 1 + _log2(ulp)))
    total.histogram += np.bincount(np.where(differs, kind, 0), minlength=CLASSES)


def _float_ulp(bits_a: np.ndarray, bits_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    top = bits_a.dtype.type(1 << (8 * bits_a.itemsize - 1))
    sign = (bits_a ^ bits_b) & top != 0
    size_a = (bits_a & ~top).astype(np.uint64)
    size_b = (bits_b & ~top).astype(np.uint64)
    apart = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    return np.where(sign, size_a + size_b, apart), sign


def _integer_gap(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    high, low = np.maximum(x, y), np.minimum(x, y)
    if x.dtype.kind == "i":
        high, low = high.astype(np.int64), low.astype(np.int64)
    return high.astype(np.uint64) - low.astype(np.uint64)


def _log2(distance: np.ndarray) -> np.ndarray:
    """Position of the highest set bit; 0 for 0."""
    result = np.zeros(len(distance), np.intp)
    rest = distance.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        large = rest >> np.uint64(shift) > 0
        result += np.where(large, shift, 0)
        rest = np.where(large, rest >> np.uint64(shift), rest)
    return result
