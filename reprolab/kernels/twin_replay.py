"""The replay in NumPy: oracle in tests, fallback where no compiler ran."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

Ints = np.ndarray


def order(group: Ints, first: Ints, before: Ints) -> tuple[Ints, Ints, int]:
    """Order the communications; see the compiled routine of the same name."""
    groups = int(group.max()) + 1 if len(group) else 0
    members: list[list[int]] = [[] for _ in range(groups)]
    targets: list[list[int]] = [[] for _ in range(groups)]
    waits = [0] * groups
    for node, own in enumerate(group.tolist()):
        members[own].append(node)
        for other in before[first[node] : first[node + 1]].tolist():
            targets[group[other]].append(own)
            waits[own] += 1
    queue = deque(own for own in range(groups) if not waits[own])
    done: list[int] = []
    bounds = [0]
    while queue:
        own = queue.popleft()
        done += members[own]
        bounds.append(len(done))
        for other in targets[own]:
            waits[other] -= 1
            if not waits[other]:
                queue.append(other)
    ordered = len(bounds) - 1
    done += [-1] * (len(group) - len(done))
    bounds += [bounds[-1]] * (groups - ordered)
    return np.array(done, np.int32), np.array(bounds, np.int32), ordered


def replay(
    members: Ints,
    bounds: Ints,
    first: Ints,
    before: Ints,
    durations: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Fill starts and ends; see the compiled routine of the same name."""
    for low, high in pairwise(bounds):
        nodes = members[low:high]
        for node in nodes:
            waited = before[first[node] : first[node + 1]]
            starts[node] = ends[waited].max(axis=0) if len(waited) else 0.0
        ends[nodes] = starts[nodes].max(axis=0) + durations[nodes]
