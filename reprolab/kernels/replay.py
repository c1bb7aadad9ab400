"""Replay a graph of operations: when everything would have started and ended.

An operation starts when all operations it waits for have ended. The operations of one
communication, on several ranks, all run from the start of the last of them, each for its own
duration. Durations come as a matrix with one column a *lane*: a step, or one of many what-ifs; all
lanes share the graph and are replayed in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from reprolab.kernels import twin_replay

try:
    _kernel = import_module("reprolab.kernels._replay")
except ImportError:  # no compiler ran; `backend` warns once for all kernels
    _kernel = twin_replay


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A graph, ordered so that it can be replayed in one pass."""

    first: np.ndarray
    """int32 [nodes + 1]: node ``v`` waits for ``before[first[v]:first[v + 1]]``."""
    before: np.ndarray
    """int32 [edges]"""
    members: np.ndarray
    """int32 [nodes]: nodes, those of one communication side by side, after all they wait for."""
    bounds: np.ndarray
    """int32 [groups + 1]: where each communication starts in `members`."""

    @property
    def nodes(self) -> int:
        """Number of operations."""
        return len(self.members)


def schedule(group: np.ndarray, first: np.ndarray, before: np.ndarray) -> Schedule:
    """Order a graph of operations.

    Parameters
    ----------
    group : int [nodes]
        Communication of each node, numbered from 0 without gaps. An operation that waits for
        nobody else is a communication of one.
    first, before : int [nodes + 1], int [edges]
        Node ``v`` waits for the nodes ``before[first[v]:first[v + 1]]``.

    Raises
    ------
    ValueError
        If indices are out of range or the graph has a cycle.
    """
    group, first, before = (np.ascontiguousarray(a, np.int32) for a in (group, first, before))
    nodes = len(group)
    if len(first) != nodes + 1 or first[0] != 0 or first[-1] != len(before):
        raise ValueError(f"first must have {nodes + 1} entries from 0 to {len(before)}")
    if np.any(np.diff(first) < 0):
        raise ValueError("first must not decrease")
    if len(before) and (before.min() < 0 or before.max() >= nodes):
        raise ValueError(f"before must name nodes from 0 to {nodes - 1}")
    groups = int(group.max()) + 1 if nodes else 0
    if len(np.unique(group)) != groups or (nodes and group.min() != 0):
        raise ValueError("group must be numbered from 0 without gaps")
    members, bounds, ordered = _kernel.order(group, first, before)
    if ordered < groups:
        raise ValueError(
            f"the graph has a cycle: {groups - ordered} of {groups} operations wait for each other"
        )
    return Schedule(first, before, members, bounds)


def replay(graph: Schedule, durations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replay a graph.

    Parameters
    ----------
    graph : Schedule
        What waits for what.
    durations : float64 [nodes, lanes]
        Seconds. For an operation of a communication, the time from the last one's start.

    Returns
    -------
    starts, ends : float64 [nodes, lanes]
        Seconds since the start of the step.
    """
    durations = np.ascontiguousarray(durations, np.float64)
    if durations.ndim != 2 or len(durations) != graph.nodes:
        raise ValueError(f"durations must be [{graph.nodes}, lanes]; got {durations.shape}")
    starts, ends = np.empty_like(durations), np.empty_like(durations)
    _kernel.replay(graph.members, graph.bounds, graph.first, graph.before, durations, starts, ends)
    return starts, ends
