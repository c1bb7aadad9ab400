"""The heat map as the page gets it: one byte a cell.

A cell's code says how it looks: 0 not recorded, 1 exactly equal, 2 not finite, 3 different but
below what the sketch can measure, 4 not the same tensor on both sides; 5 to 255 are the logarithm
of the relative distance, in equal steps over a range that is the same for all streams and ranks of
a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from reprolab.comparison import Comparison

MISSING, EQUAL, NOT_FINITE, UNRESOLVED, UNPAIRED, LOWEST = range(6)
HIGHEST = 255

KINDS = {
    None: EQUAL,
    "below resolution": UNRESOLVED,
    "non-finite": NOT_FINITE,
    "absent in a": UNPAIRED,
    "absent in b": UNPAIRED,
    "layout": UNPAIRED,
}
"""Codes of the kinds of difference that have no measured distance."""


def extent(rows: pl.DataFrame) -> tuple[int, int]:
    """Whole decades that hold all relative distances that could be measured.

    Examples
    --------
    >>> extent(pl.DataFrame({"kind": ["apart", "apart"], "relative": [3e-7, 0.02]}))
    (-7, -1)
    """
    measured = rows.filter(pl.col("kind") == "apart")["relative"]
    measured = measured.filter(measured.is_finite() & (measured > 0))
    if measured.is_empty():
        return -8, 0
    low = math.floor(math.log10(measured.min()))  # type: ignore[arg-type]
    high = math.ceil(math.log10(measured.max()))  # type: ignore[arg-type]
    return low, max(high, low + 1)


def encode(logarithms: np.ndarray, extent: tuple[int, int]) -> np.ndarray:
    """Turn log10 distances into codes.

    Parameters
    ----------
    logarithms : numpy.ndarray
        float, any shape: log10 of the relative distance; -inf is exactly equal, +inf not finite,
        NaN not recorded.
    extent : tuple of int
        Logarithms that the lowest and the highest code stand for.

    Returns
    -------
    numpy.ndarray
        uint8 codes of the same shape.
    """
    low, high = extent
    finite = np.isfinite(logarithms)
    share = np.where(finite, logarithms - low, 0.0) / (high - low)
    codes = np.rint(LOWEST + np.clip(share, 0, 1) * (HIGHEST - LOWEST)).astype(np.uint8)
    codes[np.isnan(logarithms)] = MISSING
    codes[np.isneginf(logarithms)] = EQUAL
    codes[np.isposinf(logarithms)] = NOT_FINITE
    return codes


def heat(
    comparison: Comparison, stream: str, rank: int | None, extent: tuple[int, int]
) -> dict[str, Any]:
    """One stream's map, for one rank or (None) the largest distance over all ranks.

    Returns
    -------
    dict
        ``steps``, ``tensors``, ``frame`` (codes as bytes, row-major, one row a tensor), ``focus``
        (the tensor to look at where none is chosen) and what was asked for.
    """
    steps, tensors, logarithms = comparison.heat(stream, rank)
    codes = encode(np.asarray(logarithms, dtype=float), extent)
    _mark(codes, comparison.rows, stream, rank, list(steps), list(tensors))
    return {
        "stream": stream,
        "rank": rank,
        "steps": [int(step) for step in steps],
        "tensors": list(tensors),
        "frame": codes.tobytes(),
        "range": list(extent),
        "focus": _focus(tensors, codes),
    }


def _mark(
    codes: np.ndarray,
    rows: pl.DataFrame,
    stream: str,
    rank: int | None,
    steps: list[int],
    tensors: list[str],
) -> None:
    """Give the cells that have no distance their own looks.

    Over several ranks a measured distance is shown before one too small to measure, and whatever
    is not finite or not there before any distance.
    """
    here = rows.filter(pl.col("stream") == stream)
    if rank is not None:
        here = here.filter(pl.col("rank") == rank)
    kind, cell = pl.col("kind").cast(pl.String), ["step", "tensor"]
    measured = here.filter(kind == "apart").select(cell).unique()
    others = here.filter(kind != "apart").select(*cell, kind)
    tiny = others.filter(kind == "below resolution").join(measured, on=cell, how="anti")
    column = {step: index for index, step in enumerate(steps)}
    row = {tensor: index for index, tensor in enumerate(tensors)}
    for wanted in (UNRESOLVED, UNPAIRED, NOT_FINITE):
        names = [name for name, code in KINDS.items() if code == wanted]
        found = tiny if wanted == UNRESOLVED else others.filter(kind.is_in(names))
        for step, tensor in found.select(cell).unique().iter_rows():
            if step in column and tensor in row:
                codes[row[tensor], column[step]] = wanted


def _focus(tensors: Sequence[str], codes: np.ndarray) -> str:
    """The first tensor to differ, at the earliest step; otherwise the first of all."""
    different = np.argwhere(codes.T > EQUAL)
    return tensors[different[0, 1]] if len(different) else (tensors[0] if tensors else "")
