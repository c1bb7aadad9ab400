"""How the ranks' clocks differ, found from collectives, which end everywhere at once.

Nobody leaves a barrier-like collective before the last rank has entered it, and all leave within a
message's latency. So the ends of one collective on different ranks are one moment seen by different
clocks. Per rank an offset and a drift are fitted to the differences: the drift by the Theil-Sen
slope, the median over slopes of point pairs half the record apart, the offset by a median; up to a
third of the collectives may be wild. Where the clock of a rank jumped, the steps after the jump
keep an offset of their own.

References
----------
Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

AGREE = 5e-3
"""Seconds within which clocks count as synchronised: a good NTP. Such clocks are left alone."""
JUMP = 20.0
"""A step's own offset counts as a jump beyond so many times its usual scatter."""
SCATTER = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class Clocks:
    """What to subtract from each rank's times so that all ranks share one clock."""

    ranks: np.ndarray
    """int [ranks], sorted"""
    steps: np.ndarray
    """int64 [steps], sorted"""
    offset: np.ndarray
    """float64 [ranks]: seconds ahead of the reference at the middle of the record."""
    drift: np.ndarray
    """float64 [ranks]: seconds gained on the reference in a second."""
    middle: np.ndarray
    """float64 [ranks]: the middle of the record on each rank's own clock."""
    jumps: np.ndarray
    """float64 [ranks, steps]: further seconds ahead during this step; mostly 0."""
    aligned: np.ndarray
    """bool [ranks]: whether the rank shares a collective with the reference, over others or not."""
    error: float
    """Standard error of the offsets in seconds, the worst rank; NaN where nothing was fitted."""
    corrected: bool
    """Whether the clocks disagreed enough to be corrected at all."""

    def correct(self, rank: np.ndarray, lane: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Bring times to the reference clock.

        Parameters
        ----------
        rank, lane : int arrays
            Row in `ranks` and in `steps` of each moment.
        moment : float64 array
            Times on the rank's own clock, in seconds.
        """
        if not self.corrected:
            return moment
        ahead = self.offset[rank] + self.drift[rank] * (moment - self.middle[rank])
        return moment - ahead - self.jumps[rank, lane]

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        if np.isnan(self.error):
            return (
                "No collective that all leave together joins the ranks, so their clocks could not "
                "be compared; they were taken to agree."
            )
        if not self.corrected:
            return f"The ranks' clocks agree within {1e3 * AGREE:.0f} ms and were used as they are."
        widest = np.abs(self.offset[self.aligned]).max()
        drift = 1e6 * np.abs(self.drift).max()
        drifting = f" and drift by up to {drift:.3g} ppm" if drift > 0 else ""
        text = (
            f"The ranks' clocks differ by up to {widest:.3g} s{drifting}; they were aligned by the "
            f"ends of collectives, to {1e6 * self.error:.0f} µs."
        )
        jumped = self.ranks[np.any(self.jumps != 0, axis=1)]
        if len(jumped):
            text += f" The clock of rank {', '.join(map(str, jumped))} jumped."
        return text


def align(rank: np.ndarray, step: np.ndarray, communication: np.ndarray, end: np.ndarray) -> Clocks:
    """Fit the clocks of all ranks to a reference rank.

    Parameters
    ----------
    rank, step : int [n]
        Where each collective was seen.
    communication : int [n]
        Which collective it was; the same number on all its ranks.
    end : float64 [n]
        When it ended, in seconds on the rank's own clock.
    """
    if not len(rank):
        nothing, number = np.empty(0), np.empty(0, np.int64)
        jumps, done = np.empty((0, 0)), np.empty(0, bool)
        return Clocks(
            number, number, nothing, nothing, nothing, jumps, done, np.nan, corrected=False
        )
    ranks, rank = np.unique(rank, return_inverse=True)
    steps, lane = np.unique(step, return_inverse=True)
    middle = np.array([(own.min() + own.max()) / 2 for own in _by(rank, len(ranks), end)])
    fit = _Fit(len(ranks), middle)
    common = fit.spread_from_reference(rank, communication, end)
    spread = _ranges(rank, end, communication)
    reference = common[communication]
    # In a group of two either one may have jumped; the widest groups can tell.
    width = np.bincount(communication)[communication]
    widest = np.zeros(len(ranks), int)
    np.maximum.at(widest, rank, width)
    known = ~np.isnan(reference) & fit.done[rank] & (width == widest[rank])
    residual = fit.residual(rank, end, reference)
    jumps = np.zeros((len(ranks), len(steps)))
    jumps, error = _jumps(rank[known], lane[known], residual[known], jumps)
    disagree = bool(spread > AGREE or jumps.any())
    return Clocks(ranks, steps, fit.offset, fit.drift, middle, jumps, fit.done, error, disagree)


class _Fit:
    """Offsets and drifts, found rank by rank outward from the reference."""

    def __init__(self, ranks: int, middle: np.ndarray) -> None:
        self.offset, self.drift = np.zeros(ranks), np.zeros(ranks)
        self.middle = middle
        self.done = np.zeros(ranks, bool)

    def residual(self, rank: np.ndarray, end: np.ndarray, reference: np.ndarray) -> np.ndarray:
        ahead = self.offset[rank] + self.drift[rank] * (end - self.middle[rank])
        return end - ahead - reference

    def spread_from_reference(
        self, rank: np.ndarray, communication: np.ndarray, end: np.ndarray
    ) -> np.ndarray:
        """Fit all ranks that can be reached; return the collectives' ends on the common clock."""
        number = np.bincount(rank)
        self.done[number.argmax()] = True
        common = np.full(communication.max() + 1, np.nan)
        while True:
            known = self.done[rank]
            corrected = self.residual(rank[known], end[known], np.zeros(known.sum()))
            common = _group_median(communication[known], corrected, len(common))
            reachable = ~known & ~np.isnan(common[communication])
            new = np.unique(rank[reachable])
            if not len(new):
                break
            for one in new.tolist():
                own = reachable & (rank == one)
                self._fit_one(one, end[own], common[communication[own]])
            self.done[new] = True
        # Once more, now that every collective is known from all its ranks.
        for one in np.flatnonzero(self.done).tolist():
            own = rank == one
            self._fit_one(one, end[own], common[communication[own]])
        corrected = self.residual(rank, end, np.zeros(len(rank)))
        return _group_median(communication[known], corrected[known], len(common))

    def _fit_one(self, rank: int, end: np.ndarray, reference: np.ndarray) -> None:
        order = np.argsort(end)
        time, ahead = end[order] - self.middle[rank], (end - reference)[order]
        self.drift[rank], self.offset[rank] = 0.0, np.median(ahead)
        half = len(time) // 2
        if half < 3:
            return
        apart = time[-half:] - time[:half]
        rise = ahead[-half:] - ahead[:half]
        drift = np.median(rise[apart > 0] / apart[apart > 0]) if np.any(apart > 0) else 0.0
        straight = ahead - drift * time
        offset = np.median(straight)
        # Within a short record the ends of different collectives can feign a drift; a real one
        # explains most of what the offset alone leaves.
        if np.median(np.abs(straight - offset)) < np.median(np.abs(ahead - self.offset[rank])) / 3:
            self.drift[rank], self.offset[rank] = drift, offset


def _by(key: np.ndarray, count: int, value: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(key, kind="stable")
    return np.split(value[order], np.cumsum(np.bincount(key, minlength=count))[:-1])


def _group_median(key: np.ndarray, value: np.ndarray, count: int) -> np.ndarray:
    """Lower median of the values of each key, NaN where there are none."""
    order = np.lexsort((value, key))
    size = np.bincount(key, minlength=count)
    first = np.cumsum(size) - size
    found = np.full(count, np.nan)
    present = size > 0
    found[present] = value[order][(first + (size - 1) // 2)[present]]
    return found


def _ranges(rank: np.ndarray, end: np.ndarray, communication: np.ndarray) -> float:
    """Largest median over a rank's collectives of how far it ends from the others."""
    middle = _group_median(communication, end, communication.max() + 1)[communication]
    return max(np.median(np.abs(own)) for own in _by(rank, rank.max() + 1, end - middle))


def _jumps(
    rank: np.ndarray, lane: np.ndarray, residual: np.ndarray, jumps: np.ndarray
) -> tuple[np.ndarray, float]:
    steps = jumps.shape[1]
    cell = rank * steps + lane
    median = _group_median(cell, residual, jumps.size).reshape(jumps.shape)
    inside = residual - median.ravel()[cell]
    scatter = SCATTER * np.median(np.abs(inside)) if len(inside) else 0.0
    usual = SCATTER * np.nanmedian(np.abs(median)) if np.isfinite(median).any() else 0.0
    wild = np.abs(np.nan_to_num(median)) > max(JUMP * max(scatter, usual), 10 * AGREE)
    jumps = np.where(wild, np.nan_to_num(median), 0.0)
    left = residual - jumps.ravel()[cell]
    size = np.bincount(rank)
    errors = [
        1.2533 * SCATTER * np.median(np.abs(own)) / np.sqrt(len(own))
        for own in _by(rank, len(size), left)
        if len(own)
    ]
    return jumps, float(max(errors, default=np.nan))
