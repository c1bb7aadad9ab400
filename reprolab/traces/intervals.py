"""Intervals of time: their union, and how much of it lies within others."""

from __future__ import annotations

import numpy as np


def union(intervals: list[tuple[float, float]]) -> np.ndarray:
    """Sorted, disjoint intervals that cover the same time, float64 [n, 2]."""
    if not intervals:
        return np.empty((0, 2))
    found = np.array(sorted(intervals))
    reach = np.maximum.accumulate(found[:, 1])
    opens = np.concatenate([[True], found[1:, 0] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return np.column_stack([found[opens, 0], reach[closes]])


def inside(intervals: np.ndarray, begin: float, end: float) -> float:
    """How much of disjoint intervals lies between two moments."""
    low = np.searchsorted(intervals[:, 1], begin, side="right")
    high = np.searchsorted(intervals[:, 0], end, side="left")
    some = intervals[low:high]
    return float((np.minimum(some[:, 1], end) - np.maximum(some[:, 0], begin)).sum())


def both(one: np.ndarray, other: np.ndarray, begin: float, end: float) -> float:
    """How much of the first intervals lies between two moments and within the second ones."""
    low = np.searchsorted(one[:, 1], begin, side="right")
    high = np.searchsorted(one[:, 0], end, side="left")
    return sum(inside(other, max(begin, first), min(end, last)) for first, last in one[low:high])
