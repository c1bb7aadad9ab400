"""What to do: microbatch counts for every rank, their predicted gain, and other measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.families import COMPUTE, FAMILIES, families_of
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.pipeline import BACKWARD
from reprolab.policy.balance import Plan, plan
from reprolab.tables.operations import WORK


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A plan for the replicas of a trace."""

    plan: Plan
    """Counts and weights, one a replica, in the order of `table`."""
    table: pl.DataFrame
    """``dp``, ``ranks`` (a list), ``seconds`` a microbatch, ``fixed`` seconds, ``now``,
    ``planned``, ``weight``."""
    replayed: float
    """Mean step in seconds that the replay predicts with these counts."""
    now: float
    """Mean step in seconds, replayed as it was."""
    advice: tuple[str, ...]
    """Other measures, the most promising first."""

    @property
    def gain(self) -> float:
        """Seconds saved in the mean step, by the replay."""
        return self.now - self.replayed


def propose(
    model: Model,
    microbatches: np.ndarray | int | None,
    advice: tuple[str, ...],
    *,
    horizon: int,
    cost: float,
    least_gain: float,
) -> Proposal:
    """Share microbatches out by measured speed.

    Parameters
    ----------
    model : Model
    microbatches : int or int [replicas], optional
        What each replica takes now, in microbatches or, where it takes one, in samples. Read off
        the operations when omitted.
    advice : tuple of str
        Other measures.
    horizon, cost, least_gain
        As for :func:`reprolab.policy.balance.plan`.

    Raises
    ------
    ValueError
        If `microbatches` is not positive, or not one a replica.
    """
    nodes, own = model.graph.nodes, model.timing.own
    replica, of = np.unique(nodes["dp"].to_numpy(), return_inverse=True)
    stage = nodes["stage"].to_numpy()
    computes = families_of(model.graph) == FAMILIES.index(COMPUTE)
    computes &= ~nodes["operation"].str.contains("optimizer").to_numpy()
    present = _present(model, replica, of) if microbatches is None else microbatches
    present = np.broadcast_to(np.asarray(present, np.int64), replica.shape)
    if (present < 1).any():
        raise ValueError(f"microbatches must be at least 1 a replica; got {present.min()}")

    stages = int(stage.max()) + 1
    works = nodes["role"].to_numpy() == WORK
    usual = np.median(own, axis=1)
    cell = of * stages + stage
    busy = np.bincount(cell, usual * computes, len(replica) * stages).reshape(-1, stages)
    rest = np.bincount(cell, usual * (works & ~computes), len(replica) * stages)
    each = busy / present[:, None]
    # A pipeline is as fast as its slowest stage, and fills and empties over the others.
    seconds = each.max(axis=1)
    fixed = rest.reshape(-1, stages).max(axis=1) + each.sum(axis=1) - seconds
    seconds = np.maximum(seconds, 1e-12)
    found = plan(seconds, fixed, present, horizon=horizon, cost=cost, least_gain=least_gain)
    scaled = np.where(computes[:, None], own * (found.counts / present)[of][:, None], own)
    ranks = nodes.group_by("dp").agg(pl.col("rank").unique().sort()).sort("dp")
    table = pl.DataFrame(
        {
            "dp": replica,
            "ranks": ranks["rank"],
            "seconds": seconds,
            "fixed": fixed,
            "now": present,
            "planned": found.counts,
            "weight": found.weights,
        }
    )
    now = float(model.actual.mean())
    replayed = float(model.steps_with(scaled).mean()) if found.switch else now
    return Proposal(found, table, replayed, now, advice)


def _present(model: Model, replica: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Microbatches of each replica: backward computations of a rank and step."""
    nodes = model.graph.nodes
    backward = (nodes["operation"] == BACKWARD).to_numpy()
    if not backward.any():
        return np.ones(len(replica), np.int64)
    ranks = nodes["rank"].to_numpy()
    found = np.ones(len(replica), np.int64)
    for one in range(len(replica)):
        of_rank = ranks[backward & (of == one)]
        found[one] = np.bincount(of_rank).max() if len(of_rank) else 1
    return found
