"""The what-if model of a trace: what each step would have taken, had some operations been ideal.

An operation's ideal duration is the same on all ranks and at all steps. In a pipeline it is the
mean over all operations of its name for work, the median (without waiting) for communication;
elsewhere, where one rank may be a large part of all, the lower median over the same place in the
step. The ideal step replays the graph with ideal durations only. The *slowdown* S is the mean step
time over the ideal one, both replayed, so that idle gaps nobody recorded do not count.

References
----------
Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25,
equations 1 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reprolab.diagnosis.straggling.graph import Graph
from reprolab.diagnosis.straggling.timing import Timing
from reprolab.kernels.replay import replay
from reprolab.tables.operations import WORK


@dataclass(frozen=True, eq=False)
class Model:
    """A graph with measured and ideal durations."""

    graph: Graph
    timing: Timing
    hidden: np.ndarray | float = 0.0
    """float64 [steps]: time of each step that the graph does not show, whatever is changed."""

    @cached_property
    def typical(self) -> np.ndarray:
        """Ideal duration of each node, float64 [nodes]."""
        works = self.graph.nodes["role"].to_numpy() == WORK
        peers, own = self.graph.peers, self.timing.own
        order = np.argsort(peers, kind="stable")
        value = np.empty(len(peers))
        for some in np.split(order, np.cumsum(np.bincount(peers))[:-1]):
            if self.graph.robust:
                value[some] = _usual(own[some])
            else:
                # The measures of the paper: work varies little, while the tail of a communication
                # is what somebody else caused.
                value[some] = (np.mean if works[some].all() else np.median)(own[some])
        return value

    @cached_property
    def actual(self) -> np.ndarray:
        """Replayed time of each step, float64 [steps]."""
        return self.steps_with(self.timing.own)

    @cached_property
    def ideal(self) -> float:
        """Seconds: replayed time of the ideal step."""
        return float(self.step_times(self.typical[:, None])[0])

    @property
    def slowdown(self) -> float:
        """S: mean step time over the ideal one."""
        return float(self.actual.mean() / self.ideal)

    def step_times(self, durations: np.ndarray) -> np.ndarray:
        """Replayed time of each lane of `durations`, float64 [nodes, lanes]."""
        return replay(self.graph.schedule, durations)[1].max(axis=0)

    def steps_with(self, durations: np.ndarray) -> np.ndarray:
        """Time of each step with other durations, float64 [nodes, steps], hidden time included."""
        return self.step_times(durations) + self.hidden

    def only(self, slow: np.ndarray) -> np.ndarray:
        """Time of each step, had only these operations been as slow as they were.

        Parameters
        ----------
        slow : bool [nodes] or bool [nodes, steps]
        """
        slow = slow[:, None] if slow.ndim == 1 else slow
        return self.step_times(np.where(slow, self.timing.own, self.typical[:, None]))

    def without(self, slow: np.ndarray) -> np.ndarray:
        """Time of each step, had these operations been ideal and the others as they were."""
        slow = slow[:, None] if slow.ndim == 1 else slow
        return self.steps_with(np.where(slow, self.typical[:, None], self.timing.own))

    def explained(self, slow: np.ndarray) -> float:
        """Share of the slowdown that vanishes when these operations are ideal (M of the paper)."""
        excess = self.actual.mean() - self.ideal
        return float((self.actual.mean() - self.without(slow).mean()) / excess) if excess else 0.0


def _usual(own: np.ndarray) -> float:
    # The lower median: what delays is never early, and of two ranks the faster one is the measure.
    half = (own.size - 1) // 2
    median = np.partition(own, half, axis=None)[half]
    # Work that happens at few steps, such as a checkpoint, is not a slowdown of those steps.
    return float(median if median > 0 else own.mean())
