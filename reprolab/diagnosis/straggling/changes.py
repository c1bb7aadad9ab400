"""Stretches of steps at which a rank is slower than its peers: a CUSUM scan.

What counts is time beyond a gate, standardised and clipped, so that single wild steps do not make a
stretch. Of all ways to choose stretches of a rank, the one with the largest sum is taken, where
each stretch costs a threshold. For independent noise x that falls on average, the largest sum of a
stretch over n steps exceeds h with probability about ``n exp(-c h)``, where c is the positive
number with ``E exp(c x) = 1``: Cramér's. So the threshold keeps the chance of any false stretch
over all ranks and steps below a given level; noise that lingers from step to step raises it.

References
----------
Page, "Continuous inspection schemes", Biometrika 41 (1954).
Asmussen, "Applied Probability and Queues", 2nd ed. 2003, chapter XIII (Cramér's exponent).
"""

from __future__ import annotations

import numpy as np

LEVEL = 1e-3
"""Chance of one false stretch or more in a whole healthy trace."""
CLIP = 3.0
"""Standard deviations beyond which a step counts no further."""
SHORTEST = 5
"""Steps of the shortest stretch that is told from noise."""
LONGEST_MEMORY = 64
"""Steps over which noise may linger."""

LEAST_DRIFT, MOST_DRIFT = 0.5, 1.5
"""Bounds of the drift, in standard deviations: below, too many steps are needed; above, tails are
not as light as the formula has them."""
LEAST_DECAY, MOST_DECAY = 0.1, 3.0
"""Bounds of the exponent: wilder noise is not believed in, nor that tails are any lighter."""
STEEPEST, SAMPLE, HALVINGS = 40.0, 1000, 12
"""Where the search for the exponent begins, and the steps and bisections it takes."""
STEEP = 1.0
"""How much further the second scan falls a step."""

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
    raw = beyond / noise
    clipped = np.clip(raw, -CLIP, CLIP)
    # The bulk of a noise with long tails does not tell how far it strays. Medians over rows ignore
    # the slow ones, differences where slowness begins.
    spread = max(1.0, float(np.median((np.diff(clipped, axis=1) ** 2).mean(axis=1))) / 2)
    # Noise far below the gate need not be looked at more closely than the gate asks for.
    unit = max(noise * float(np.sqrt(spread)), gate / MOST_DRIFT)
    lingering = _lingering(raw)
    score = beyond / unit
    # Noise with a long right tail has a positive mean around its median.
    skew = max(0.0, float(np.median(np.clip(score, -CLIP, CLIP).mean(axis=1))))
    drift = max(gate / unit, LEAST_DRIFT) + skew
    found: list[Stretch] = []
    known: set[int] = set()
    # Slight slowness needs a low drift and many steps; a great one shows within a few.
    for fall in (drift, drift + STEEP):
        rise = np.clip(score - fall, -CLIP, CLIP)
        # Sums of noise that lingers spread like those of as many times stronger noise.
        decay = min(max(_decay(rise) / lingering, LEAST_DECAY), MOST_DECAY)
        threshold = float(np.log(2 * max(score.size, 2) / level)) / decay
        walk = np.concatenate([np.zeros((len(rise), 1)), np.cumsum(rise, axis=1)], axis=1)
        best = (walk - np.minimum.accumulate(walk, axis=1)).max(axis=1)
        for row in np.flatnonzero(best > threshold).tolist():
            if row not in known:
                some = _choose(rise[row], threshold)
                found += [(row, *one) for one in _sharpen(score[row], some, fall, threshold)]
        known = {row for row, _, _ in found}
    return sorted(found)


def _decay(rise: np.ndarray) -> float:
    """Cramér's exponent of the noise: the median over rows, so that slow rows do not count."""
    some = rise[:, :: max(1, rise.shape[1] // SAMPLE)]
    low, high = np.zeros(len(some)), np.full(len(some), STEEPEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        falls = np.exp(middle[:, None] * some).mean(axis=1) < 1
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return float(np.median(low))


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
    """How many times more the sums of neighbouring steps vary than those of unrelated ones.

    Medians over the windows of a row and over rows ignore the few with a change in them; what tails
    alone do to sums shows in the same steps shuffled, and cancels.
    """
    steps = score.shape[1]
    shuffled = score[:, np.random.default_rng(0).permutation(steps)]
    found, width = 1.0, 2
    while width <= LONGEST_MEMORY and 8 * width <= steps:
        one, other = (_change(values, width) for values in (score, shuffled))
        usable = other > 0
        if usable.any():
            found = max(found, float(np.median((one[usable] / other[usable]) ** 2)))
        width *= 2
    # Up to here is the scatter of the estimate itself.
    return found if found > 1.5 else 1.0


def _change(values: np.ndarray, width: int) -> np.ndarray:
    """Median change of each row from one window's mean to the next."""
    windows = values[:, : values.shape[1] // width * width].reshape(len(values), -1, width)
    return np.median(np.abs(np.diff(windows.mean(axis=2), axis=1)), axis=1)
