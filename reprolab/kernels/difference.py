"""How two tensors differ, element by element, in one pass over both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reprolab.kernels import backend
from reprolab.kernels.tensors import CODES, dtype_name, flat_bytes, is_torch, locate
from reprolab.kernels.twin_difference import CLASSES, Tally
from reprolab.kernels.twin_difference import tally as twin_tally
from reprolab.vocabulary import ITEMSIZE

ULP_CLASSES = (
    "0",
    "1",
    *(f"{1 << k}-{(2 << k) - 1}" for k in range(1, 64)),
    "sign flip",
    "NaN",
)
"""Names of the classes of ``Difference.ulp_histogram``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between tensors a and b.

    The ULP distance of two floats is the number of representable values from one to the other,
    with +0 and -0 as one value and infinity next to the largest; that of integers is ``|a - b|``.
    """

    count: int
    """Elements of each side."""
    differing: int
    """Elements with different bits."""
    beyond: int
    """Elements with ``|a - b| > atol + rtol * |b|``, one-sided NaN, or unequal infinities."""
    first: int | None
    """Flat index of the first element with different bits."""
    max_abs: float
    """Largest ``|a - b|`` where both are finite. Rounded to float32 for floats of at most 32 bits;
    their sums of squares have a relative error of up to 2^-22, or 2^-18 below 32 bits."""
    max_ulp: int
    """Largest ULP distance where neither is NaN."""
    sum_sq_diff: float
    """Sum of ``(a - b)^2`` where both are finite."""
    sum_sq_a: float
    """Sum of ``a^2`` where a is finite."""
    nan_mismatch: int
    """Elements where exactly one side is NaN."""
    inf_mismatch: int
    """Elements without NaN, unequal, where at least one side is infinite."""
    ulp_histogram: np.ndarray
    """Elements in each class of :data:`ULP_CLASSES`, int64 [67]. Identical bits are class "0",
    also for NaN; then "NaN" where either side is; then "sign flip" where the signs of floats
    differ (+0 and -0 too); then the ULP distance."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Difference):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in self.__dataclass_fields__
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def same(self) -> bool:
        """Whether all bits agree."""
        return self.differing == 0

    @property
    def relative(self) -> float:
        """``||a - b|| / ||a||``; 0 where nothing differs, infinite where only a is zero."""
        if self.sum_sq_diff == 0:
            return 0.0
        return float(np.sqrt(self.sum_sq_diff / self.sum_sq_a)) if self.sum_sq_a else np.inf


def difference(a: Any, b: Any, *, atol: float = 0.0, rtol: float = 0.0) -> Difference:
    """Compare two tensors of one dtype and shape.

    Parameters
    ----------
    a, b : ndarray or torch.Tensor
        Any dtype of ``vocabulary.ITEMSIZE``, any strides. Tensors on a device are copied here.
    atol, rtol : float
        Tolerances of :attr:`Difference.beyond`, not negative.

    Raises
    ------
    UnsupportedDtype
        Where the kernels know no such dtype.
    ValueError
        Where dtypes or shapes differ, or a tolerance is negative or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> found = difference(np.float32([1, 2, 3]), np.float32([1, -2, 3]))
    >>> found.differing, found.first, found.max_abs
    (1, 1, 4.0)
    """
    dtype = dtype_name(a)
    if dtype_name(b) != dtype or tuple(a.shape) != tuple(b.shape):
        raise ValueError(
            f"a and b must have one dtype and shape; got {dtype} {tuple(a.shape)} and "
            f"{dtype_name(b)} {tuple(b.shape)}"
        )
    if not (atol >= 0 and rtol >= 0):
        raise ValueError(f"atol and rtol must not be negative; got {atol}, {rtol}")
    a, b = (flat_bytes(locate(side.cpu() if is_torch(side) else side)[0]) for side in (a, b))
    found = _tally(a, b, dtype, atol, rtol)
    return Difference(
        count=len(a) // ITEMSIZE[dtype],
        differing=found.differing,
        beyond=found.beyond,
        first=None if found.first < 0 else found.first,
        max_abs=found.max_abs,
        max_ulp=found.max_ulp,
        sum_sq_diff=found.sum_sq_diff,
        sum_sq_a=found.sum_sq_a,
        nan_mismatch=found.nan_mismatch,
        inf_mismatch=found.inf_mismatch,
        ulp_histogram=found.histogram,
    )


def _tally(a: np.ndarray, b: np.ndarray, dtype: str, atol: float, rtol: float) -> Tally:
    if backend.passes is None:
        return twin_tally(a, b, dtype, atol, rtol)
    histogram = np.zeros(CLASSES, np.int64)
    found = Tally(*backend.passes.tally(a, b, CODES[dtype], atol, rtol, histogram))
    found.histogram = histogram
    return found
