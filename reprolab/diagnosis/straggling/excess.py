"""How much longer each rank took at each step than its peers did for the same work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.diagnosis.straggling.clocks import SCATTER
from reprolab.diagnosis.straggling.families import FAMILIES, families_of
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Excess:
    """Time beyond what peers needed, for every family, rank and step."""

    ranks: np.ndarray
    """int [ranks], sorted"""
    stage: np.ndarray
    """int [ranks]"""
    steps: np.ndarray
    """int64 [steps]"""
    seconds: np.ndarray
    """float64 [families, ranks, steps]: the rank's own time in each family."""
    beyond: np.ndarray
    """float64 [families, ranks, steps]: what of it exceeds the peers' time, adjusted for work.
    Peers are the other ranks of the stage at the same step; without any, the rank's own median."""
    noise: np.ndarray
    """float64 [families]: standard deviation from step to step, robust."""


def excess(model: Model, work: Workload) -> Excess:
    """Compare every rank with its peers at every step."""
    nodes, own = model.graph.nodes, model.timing.own
    ranks, row = np.unique(nodes["rank"].to_numpy(), return_inverse=True)
    family = families_of(model.graph)
    cell = family * len(ranks) + row
    shape = (len(FAMILIES), len(ranks), own.shape[1])
    seconds = _sum_by(cell, own, len(FAMILIES) * len(ranks)).reshape(shape)
    expected = _sum_by(cell, work.expected, len(FAMILIES) * len(ranks)).reshape(shape)
    stage = np.zeros(len(ranks), int)
    stage[row] = nodes["stage"].to_numpy()
    over = seconds - expected
    beyond = np.empty_like(over)
    for one in np.unique(stage):
        some = np.flatnonzero(stage == one)
        if len(some) > 1:
            beyond[:, some] = over[:, some] - others_median(over[:, some])
        else:
            beyond[:, some] = over[:, some] - np.median(over[:, some], axis=2, keepdims=True)
    noise = np.array([_noise(found) for found in beyond])
    return Excess(ranks, stage, model.timing.steps, seconds, beyond, noise)


def others_median(values: np.ndarray) -> np.ndarray:
    """For each entry along axis 1, the median of all the others there.

    Parameters
    ----------
    values : float64 [a, n, b]
        With n of at least 2.
    """
    count = values.shape[1]
    order = np.argsort(values, axis=1)
    ranked = np.take_along_axis(values, order, axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count)[None, :, None], axis=1)

    def left(position: int) -> np.ndarray:
        """The entry at `position` once this one is taken out."""
        own = ranked[:, position : position + 1]
        after = ranked[:, position + 1 : position + 2]
        return np.where(place > position, own, after)

    low, high = (count - 2) // 2, (count - 1) // 2
    return left(low) if low == high else (left(low) + left(high)) / 2


def _sum_by(key: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(key, kind="stable")
    found = np.zeros((count, values.shape[1]))
    present, first = np.unique(key[order], return_index=True)
    if len(present):
        found[present] = np.add.reduceat(values[order], first, axis=0)
    return found


def _noise(beyond: np.ndarray) -> float:
    """Standard deviation of the steps of a rank around its level, [ranks, steps].

    Differences of neighbouring steps do not see a level, nor where it changes now and then.
    """
    if beyond.shape[1] < 2:
        return float(SCATTER * np.median(np.abs(beyond - np.median(beyond))))
    change = np.diff(beyond, axis=1)
    return float(SCATTER * np.median(np.abs(change)) / np.sqrt(2))
