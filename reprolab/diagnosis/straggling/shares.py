"""What the slowdown is made of: differences between stages, ranks, batches, moments, transfers.

Starting from the ideal step, one kind of difference after the other is put back, and the replay
says what each adds. The parts sum to the whole slowdown:

1. *stage*: work takes as long as it usually does on its stage;
2. *rank*: as long as it does on its rank on average;
3. *partition*: as long as the size of its batch has it take;
4. *moment*: as long as it took;
5. *communication*: transfers take as long as they took.

What is usual on a stage is the lower median over its ranks, so that one slow rank does not make its
stage look slow.
"""

from __future__ import annotations

import numpy as np

from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.workload import Workload
from reprolab.tables.operations import WORK

STAGE, RANK, PARTITION, MOMENT, COMMUNICATION = (
    "stage",
    "rank",
    "partition",
    "moment",
    "communication",
)

SAME_BATCH = 0.9
"""Correlation of a microbatch's forward and backward durations beyond which its size explains them.

The paper's threshold, for traces without tokens and with a single stage."""


def shares(model: Model, work: Workload) -> dict[str, float]:
    """Seconds that each kind of difference adds to the mean step; they sum to mean - ideal."""
    graph, own = model.graph, model.timing.own
    nodes = graph.nodes
    works = (graph.nodes["role"].to_numpy() == WORK)[:, None]
    typical = np.broadcast_to(model.typical[:, None], own.shape)
    rank, stage = _means(model)
    rank_level = np.broadcast_to(rank[:, None], own.shape)
    sized = rank_level
    if work.measure is not None:
        mean = work.expected.mean(axis=1, keepdims=True)
        sized = rank_level * work.expected / np.where(mean > 0, mean, 1.0)
    ladder = {
        STAGE: np.where(works, stage[:, None], typical),
        RANK: np.where(works, rank_level, typical),
        PARTITION: np.where(works, sized, typical),
        MOMENT: np.where(works, own, typical),
        COMMUNICATION: own,
    }
    found, before = {}, model.ideal
    for kind, durations in ladder.items():
        after = float(model.step_times(durations).mean())
        found[kind] = after - before
        before = after
    found[MOMENT] += float(np.mean(model.hidden))
    if not (nodes["stage"] != nodes["stage"][0]).any():
        # With one stage, its usual level is that of all ranks; only how it is averaged differs.
        found[MOMENT] += found[STAGE]
        found[STAGE] = 0.0
    if work.measure is None and work.together >= SAME_BATCH:
        found[PARTITION], found[MOMENT] = found[MOMENT], 0.0
    return found


def _means(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each class of operation on each rank, and what is usual on its stage, [nodes]."""
    nodes, peers = model.graph.nodes, model.graph.peers.astype(np.int64)
    mean = model.timing.own.mean(axis=1)
    rank, on_rank = np.unique(nodes["rank"].to_numpy(), return_inverse=True)
    stage = nodes["stage"].to_numpy().astype(np.int64)
    key, cell = np.unique(peers * len(rank) + on_rank, return_inverse=True)
    level = np.bincount(cell, mean) / np.bincount(cell)
    # Each class has one level a rank; of those of a stage the lower median is the usual one.
    first = np.unique(cell, return_index=True)[1]
    place = peers[first] * (int(stage.max()) + 1) + stage[first]
    usual = np.empty(len(key))
    for one in np.unique(place):
        some = place == one
        usual[some] = np.sort(level[some])[(some.sum() - 1) // 2]
    return level[cell], usual[cell]
