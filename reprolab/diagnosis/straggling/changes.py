"""Stretches of steps at which a rank is slower than its peers: a CUSUM scan.

What counts is time beyond a gate, standardised and clipped, so that single wild steps do not make a
stretch. Of all ways to choose stretches of a rank, the one with the largest sum is taken, where
each stretch costs a threshold. For independent noise of standard deviation 1 that falls by
``drift`` a step, the largest sum of a stretch over n steps exceeds h with probability about
``n exp(-2 drift h)``, so the threshold keeps the chance of any false stretch over all ranks and
steps below a given level; noise that lingers from step to step raises it.

References
----------
Page, "Continuous inspection schemes", Biometrika 41 (1954).
Siegmund, "Sequential Analysis", 1985, chapter 2 (excursions of a random walk with drift).
"""

from __future__ import annotations

import numpy as np

LEVEL = 1e-3
"""Chance of one false stretch or more in a whole healthy trace."""
CLIP = 4.0
"""Standard deviations beyond which a step counts no further."""
SHORTEST = 5
"""Steps of the shortest stretch that is told from noise."""
LONGEST_MEMORY = 30
"""Steps over which noise may linger."""

LEAST_DRIFT, MOST_DRIFT = 0.5, 1.5
"""Bounds of the drift, in standard deviations; the upper one for the threshold only, because tails
are not as light as the formula has them."""

Stretch = tuple[int, int, int]
"""Row, first column, column after the last."""


def stretches(
    beyond: np.ndarray, noise: float, gate: float, *, level: float = LEVEL
) -> list[Stretch]:
    """Find all stretches of steps whose mean lies beyond a gate.

    Parameters
    ----------
    beyond : float64 [rows, steps]
        About 0 where all is well.
    noise : float
        Its standard deviation around its level, positive.
    gate : float
        What matters, in the unit of `beyond`.
    level : float
        Chance of a false stretch.

    Returns
    -------
    list of (row, first, after)
        By row, then by first column.
    """
    score = beyond / noise
    clipped = np.clip(score, -CLIP, CLIP)
    # Noise with a long right tail has a positive mean around its median, and its bulk does not tell
    # how far it strays; medians over rows ignore the slow ones.
    drift = max(gate / noise, LEAST_DRIFT) + max(0.0, float(np.median(clipped.mean(axis=1))))
    spread = max(1.0, float(np.median(clipped.var(axis=1))))
    threshold = np.log(max(score.size, 2) / level) / (2 * min(drift, MOST_DRIFT))
    threshold *= spread * _lingering(score)
    rise = np.clip(score - drift, -CLIP, CLIP)
    walk = np.concatenate([np.zeros((len(rise), 1)), np.cumsum(rise, axis=1)], axis=1)
    best = (walk - np.minimum.accumulate(walk, axis=1)).max(axis=1)
    found: list[Stretch] = []
    for row in np.flatnonzero(best > threshold).tolist():
        some = _choose(rise[row], threshold)
        found += [(row, *one) for one in _sharpen(score[row], some, drift, threshold)]
    return found


def _choose(rise: np.ndarray, price: float) -> list[tuple[int, int]]:
    """Disjoint stretches with the largest sum of `rise`, each at a price."""
    outside, inside = 0.0, -np.inf
    entered: list[bool] = []
    left: list[bool] = []
    for gain in rise.tolist():
        before = outside
        left.append(inside > outside)
        outside = max(outside, inside)
        entered.append(before - price > inside)
        inside = max(inside, before - price) + gain
    found = []
    after = len(rise)
    now_inside = inside > outside
    for step in range(len(rise) - 1, -1, -1):
        if now_inside:
            if entered[step]:
                found.append((step, after))
                now_inside = False
        elif left[step]:
            now_inside, after = True, step
    return found[::-1]


def _sharpen(
    score: np.ndarray, chosen: list[tuple[int, int]], drift: float, price: float
) -> list[tuple[int, int]]:
    """Ends lie where the score crosses half the way between inside and outside a stretch."""
    found = []
    for number, (first, after) in enumerate(chosen):
        length = after - first
        low = chosen[number - 1][1] if number else 0
        high = chosen[number + 1][0] if number + 1 < len(chosen) else len(score)
        low, high = max(low, first - length), min(high, after + length)
        around = np.concatenate([score[low:first], score[after:high]])
        outside = float(np.median(around)) if len(around) else 0.0
        middle = max((float(np.median(score[first:after])) + outside) / 2, drift / 2)
        rise = np.clip(score[low:high] - middle, -CLIP, CLIP)
        finer = [(low + a, low + b) for a, b in _choose(rise, price)] or [(first, after)]
        found += [(a, b) for a, b in finer if b - a >= SHORTEST]
    return found


def _lingering(score: np.ndarray) -> float:
    """Long-run over short-run variance of the noise, at least 1.

    Means of neighbouring windows differ more than independent steps would make them where noise
    lingers. Medians over the windows of a row and over rows ignore the few with a change in them.
    """
    steps = score.shape[1]
    found, width = 1.0, 2
    short = np.median(np.abs(np.diff(score, axis=1)), axis=1)
    usable = short > 0
    while usable.any() and width <= LONGEST_MEMORY and 8 * width <= steps:
        windows = score[usable, : steps // width * width].reshape(usable.sum(), -1, width)
        change = np.median(np.abs(np.diff(windows.mean(axis=2), axis=1)), axis=1)
        found = max(found, float(np.median(width * (change / short[usable]) ** 2)))
        width *= 2
    # Up to here is the scatter of the estimate itself.
    return found if found > 1.5 else 1.0
