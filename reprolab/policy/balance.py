"""Share microbatches out so that all ranks finish together.

A rank that needs ``t`` seconds a microbatch and ``c`` besides finishes after ``b t + c``. The
counts that minimise the latest finish for a fixed sum are those of the greedy rule: each next
microbatch goes to the rank that would finish it first. All but the last few are given at once by a
bisection of the finishing time, so the result is exact and takes no time worth mentioning.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

HALVINGS = 60
"""Bisection steps: a double has no more digits."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How many microbatches each rank is to take, and what that brings."""

    counts: np.ndarray
    """int64 [ranks]: microbatches of each rank."""
    weights: np.ndarray
    """float64 [ranks]: factors on each rank's mean gradient before the ranks are averaged, so that
    the average is the mean over all microbatches, whoever computed them."""
    before: float
    """Seconds of a step with the present counts."""
    after: float
    """Seconds of a step with these counts."""
    switch: bool
    """Whether switching pays."""
    reason: str
    """Why, or why not."""

    @property
    def gain(self) -> float:
        """Seconds saved a step."""
        return self.before - self.after


def counts(
    seconds: np.ndarray,
    fixed: np.ndarray,
    total: int,
    *,
    least: int = 1,
    most: np.ndarray | int | None = None,
) -> np.ndarray:
    """Microbatches of each rank that minimise the latest finish, exactly.

    Parameters
    ----------
    seconds : float64 [ranks]
        Time of one microbatch, positive.
    fixed : float64 [ranks]
        Time a rank needs besides, not negative.
    total : int
        Microbatches to share out.
    least : int
        Microbatches that every rank takes at least.
    most : int or int [ranks], optional
        Microbatches that a rank takes at most; without a limit when omitted.

    Returns
    -------
    int64 [ranks]
        They sum to `total`. Among equally good counts those that let ranks finish earliest; ties go
        to the lower rank.

    Raises
    ------
    ValueError
        If the numbers make no sense or the limits leave no solution.

    Examples
    --------
    >>> counts(np.array([1.0, 1.0, 2.0]), np.zeros(3), 10).tolist()
    [4, 4, 2]
    """
    seconds, fixed = np.asarray(seconds, np.float64), np.asarray(fixed, np.float64)
    ranks = len(seconds)
    limit = np.full(ranks, total) if most is None else np.minimum(most, total)
    limit = np.broadcast_to(np.asarray(limit, np.int64), (ranks,))
    if fixed.shape != (ranks,) or not ranks:
        raise ValueError(f"seconds and fixed must be one a rank; got {ranks} and {fixed.shape}")
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise ValueError("seconds must be positive and finite")
    if not (np.isfinite(fixed).all() and (fixed >= 0).all()):
        raise ValueError("fixed must be finite and not negative")
    if least < 0 or (limit < least).any() or not ranks * least <= total <= limit.sum():
        raise ValueError(
            f"{total} microbatches cannot be shared out over {ranks} ranks with at least {least} "
            f"and at most {int(limit.sum())} together"
        )

    def within(finish: float) -> np.ndarray:
        return np.clip(np.floor((finish - fixed) / seconds), least, limit).astype(np.int64)

    low, high = 0.0, float((fixed + seconds * limit).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if within(middle).sum() <= total:
            low = middle
        else:
            high = middle
    found = within(low)
    # Counts at the minimum may finish later than `low`; they cannot be less.
    spare = total - int(found.sum())
    queue = [
        (float(fixed[rank] + seconds[rank] * (found[rank] + 1)), rank)
        for rank in np.flatnonzero(found < limit).tolist()
    ]
    heapq.heapify(queue)
    for _ in range(spare):
        finish, rank = heapq.heappop(queue)
        found[rank] += 1
        if found[rank] < limit[rank]:
            heapq.heappush(queue, (finish + float(seconds[rank]), rank))
    return found


def weights(shares: np.ndarray) -> np.ndarray:
    """Factors that keep the averaged gradient the mean over all microbatches.

    Each rank's mean gradient over its ``b`` microbatches is multiplied by ``b W / B`` before the W
    ranks' gradients are averaged, B being the sum of all b. With equal counts all factors are 1.

    Examples
    --------
    >>> weights(np.array([4, 4, 2])).tolist()
    [1.2, 1.2, 0.6]
    """
    shares = np.asarray(shares, np.int64)
    return shares * len(shares) / shares.sum()


def plan(
    seconds: np.ndarray,
    fixed: np.ndarray,
    present: np.ndarray,
    *,
    horizon: int = 1000,
    cost: float = 0.0,
    least_gain: float = 0.01,
    least: int = 1,
    most: np.ndarray | int | None = None,
) -> Plan:
    """Decide whether and how to share the present microbatches out anew.

    Parameters
    ----------
    seconds, fixed : float64 [ranks]
        As for :func:`counts`.
    present : int [ranks]
        Microbatches of each rank now; their sum stays.
    horizon : int
        Steps for which the plan would hold.
    cost : float
        Seconds that switching takes, once.
    least_gain : float
        Share of the step below which a gain may be noise: the hysteresis that keeps plans from
        flapping.
    least, most
        As for :func:`counts`.
    """
    present = np.asarray(present, np.int64)
    found = counts(seconds, fixed, int(present.sum()), least=least, most=most)
    before = float((present * seconds + fixed).max())
    after = float((found * seconds + fixed).max())
    gain = before - after
    saved = gain * horizon
    if gain < least_gain * before:
        switch, why = (
            False,
            f"the gain of {gain / before:.1%} of the step is below {least_gain:.1%}",
        )
    elif saved <= cost:
        switch, why = (
            False,
            f"{saved:.1f} s in {horizon} steps do not pay for switching ({cost:.1f} s)",
        )
    else:
        rest = f"{saved - cost:.1f} s over {horizon} steps"
        switch, why = True, f"{gain:.4g} s of {before:.4g} s a step are saved, {rest}"
    chosen = found if switch else present
    return Plan(chosen, weights(chosen), before, after if switch else before, switch, why)
