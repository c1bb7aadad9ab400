"""Single steps at which a rank is far slower than its peers, and ranks to which that happens often.

Healthy noise has tails, heavier ones than the normal distribution's, so the threshold is read off
the trace itself: its largest values are fitted as a power law (Hill) and continued to the value
that noise would pass at one rank-step in ten thousand. Where some rank passes a lower threshold far
more often than the others do, its spikes count although each by itself would not: by a binomial
test, corrected for the number of ranks.

References
----------
Hill, "A simple general approach to inference about the tail of a distribution", Annals of
Statistics 3 (1975).
"""

from __future__ import annotations

import math

import numpy as np

RARE = 1e-4
"""Chance that healthy noise passes the threshold at one rank-step."""
TAIL = 0.02
"""Share of the values that the tail is fitted to."""
COMMON = 0.005
"""Share of the values above which a rank's spikes are counted."""
LEVEL = 1e-3
"""Chance that any rank of a healthy trace is said to have many spikes."""
FEWEST = 3
"""Spikes below which nothing is said of how they are spread."""
REGULAR, REGULARLY = 0.15, 0.8
"""Of periodic spikes, this share (the second) lies within this share of a period (the first)."""


def spikes(beyond: np.ndarray, noise: float, gate: float) -> np.ndarray:
    """Mark single steps beyond what noise reaches.

    Parameters
    ----------
    beyond : float64 [rows, steps]
        Without the stretches that were found already (NaN there).
    noise : float
        Standard deviation, positive.
    gate : float
        What matters, in the unit of `beyond`.

    Returns
    -------
    bool [rows, steps]
    """
    score = np.nan_to_num(beyond / noise, nan=-np.inf)
    counted = np.isfinite(score).sum(axis=1)
    total = int(counted.sum())
    found = np.zeros(score.shape, bool)
    if total < 20:
        return found
    beyond_gate = score > gate / noise
    limit = tail_value(score[np.isfinite(score)], RARE)
    found |= (score > limit) & beyond_gate
    for row in _busy_rows(score, counted):
        others = np.delete(score, row, axis=0)
        limit = tail_value(others[np.isfinite(others)], COMMON)
        found[row] |= (score[row] > limit) & beyond_gate[row]
    return found


def tail_value(values: np.ndarray, chance: float) -> float:
    """Value that is passed with a given small chance, continued from the tail of a sample."""
    if not len(values):
        return float("inf")
    count = max(int(TAIL * len(values)), min(10, len(values) - 1), 1)
    ranked = np.sort(values)[::-1][: count + 1]
    base = max(float(ranked[-1]), 1e-9)
    above = ranked[:-1][ranked[:-1] > base]
    if not len(above):
        return base
    shape = float(np.mean(np.log(above / base)))
    return base * (count / (len(values) * chance)) ** shape


def period(steps: np.ndarray) -> int | None:
    """Number of steps between regular spikes, or None where they are irregular or few."""
    if len(steps) < FEWEST + 1:
        return None
    usual = int(np.median(np.diff(steps)))
    if usual < 2:
        return None
    # A spike may be missing now and then, or one that does not belong may stand between.
    phase = np.exp(2j * np.pi * steps / usual)
    centre = np.angle(np.median(phase.real) + 1j * np.median(phase.imag))
    off = np.abs(np.angle(phase * np.exp(-1j * centre))) / (2 * np.pi)
    return usual if np.mean(off <= REGULAR) >= REGULARLY else None


def _busy_rows(score: np.ndarray, counted: np.ndarray) -> list[int]:
    """Rows that pass the common threshold far more often than the others."""
    rows = len(score)
    if rows < 3:
        return []
    found = []
    limit = tail_value(score[np.isfinite(score)], COMMON)
    many = (score > limit).sum(axis=1)
    for row in np.flatnonzero(many >= FEWEST).tolist():
        rest = np.delete(many, row).sum() + 1
        share = rest / max(np.delete(counted, row).sum(), 1)
        chance = binomial_tail(int(many[row]), int(counted[row]), min(float(share), 1.0))
        if chance * rows < LEVEL:
            found.append(row)
    return found


def binomial_tail(hits: int, trials: int, share: float) -> float:
    """Chance of at least so many hits.

    Examples
    --------
    >>> round(binomial_tail(2, 2, 0.5), 3), binomial_tail(0, 5, 0.1)
    (0.25, 1.0)
    """
    if hits <= 0 or share >= 1:
        return 1.0
    term = math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(trials - hits + 1)
        + hits * math.log(share)
        + (trials - hits) * math.log1p(-share)
    )
    total = term
    for k in range(hits, trials):
        term *= (trials - k) / (k + 1) * share / (1 - share)
        total += term
        if term < 1e-12 * total:
            break
    return min(total, 1.0)
