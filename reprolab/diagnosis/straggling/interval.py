"""How sure the slowdown is: a bootstrap over steps.

Steps are drawn with replacement; each draw has its own mean step time and its own ideal durations,
so the interval contains the uncertainty of both. The draws' ideal steps are replayed side by side,
one lane a draw.

References
----------
Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile interval).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.diagnosis.straggling.model import Model
from reprolab.tables.operations import WORK

DRAWS = 200
"""Bootstrap samples."""
LEVEL = 0.95
"""Coverage of the interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with a percentile interval."""

    value: float
    low: float
    high: float
    """NaN with `low` where a single step leaves nothing to draw from."""

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.value:.3f} (one step, so no interval)"
        return f"{self.value:.3f} ({100 * LEVEL:.0f} % interval {self.low:.3f} to {self.high:.3f})"


def slowdown_interval(model: Model, *, seed: int = 0) -> Interval:
    """Slowdown of a model with its bootstrap interval.

    Parameters
    ----------
    model : Model
    seed : int
        Of the draws; the same seed gives the same interval.
    """
    steps = len(model.timing.steps)
    if steps < 2:
        return Interval(model.slowdown, np.nan, np.nan)
    drawn = np.random.default_rng(seed).multinomial(steps, np.full(steps, 1 / steps), size=DRAWS)
    typical = _typical(model, drawn.astype(np.float64))
    ideal = model.step_times(typical)
    found = (drawn @ model.actual) / steps / ideal
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(model.slowdown, float(low), float(high))


def _typical(model: Model, weight: np.ndarray) -> np.ndarray:
    """Ideal durations of every draw, float64 [nodes, draws]."""
    peers, own = model.graph.peers, model.timing.own
    works = model.graph.nodes["role"].to_numpy() == WORK
    order = np.argsort(peers, kind="stable")
    found = np.empty((len(peers), len(weight)))
    total = weight.sum(axis=1)
    for some in np.split(order, np.cumsum(np.bincount(peers))[:-1]):
        mean = weight @ own[some].mean(axis=0) / total
        if works[some].all() and not model.graph.robust:
            found[some] = mean
        else:
            median = _medians(own[some], weight)
            found[some] = np.where(median > 0, median, mean) if model.graph.robust else median
    return found


def _medians(own: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted medians of `own`, [nodes, steps], one a row of `weight`, [draws, steps]."""
    # A few hundred quantiles of each step stand for its values: the median of a draw is then off by
    # less than one of them, far below what the draws differ by.
    kept = np.sort(own, axis=0)
    if len(kept) > 101:
        kept = kept[np.linspace(0, len(kept) - 1, 101).round().astype(int)]
    order = np.argsort(kept, axis=None)
    step = order % own.shape[1]
    reached = np.cumsum(weight[:, step], axis=1)
    place = (reached < reached[:, -1:] / 2).sum(axis=1)
    return kept.ravel()[order[place]]
