"""How much of the slowdown belongs to which ranks, stages and operations.

For each part of the operations the slowdown had only that part been as slow as it was, all others
ideal: equations 2 to 4 of the paper. A rank's share is the smaller one of its replica's and its
stage's (equation 4), as one replay a rank would cost too much on thousands of ranks; where ranks
are not arranged in stages, each rank is replayed.

References
----------
Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.model import Model

WORST = 0.03
"""Share of the ranks that count as the worst ones."""

MESSAGES = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}
"""Operations that are one part: both ends of a message."""


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Slowdown of every part, over all steps and at each step."""

    by_replica: pl.DataFrame
    """``dp`` and ``slowdown``, the slowest first."""
    by_stage: pl.DataFrame
    """``stage`` and ``slowdown``."""
    by_operation: pl.DataFrame
    """``operation`` and ``slowdown``."""
    by_rank: pl.DataFrame
    """``rank``, ``dp``, ``stage`` and ``slowdown``."""
    per_step: pl.DataFrame
    """``part`` ("dp", "stage", "operation" or "rank"), ``which``, ``step`` and ``slowdown``."""
    worst: tuple[int, ...]
    """The slowest 3 % of the ranks, at least one."""
    explained_by_worst: float
    """Share of the slowdown that vanishes when these ranks are ideal (M_W)."""
    explained_by_last_stage: float
    """Share of the slowdown that vanishes when the last stage is ideal (M_S); 0 with one stage."""


def attribute(model: Model) -> Attribution:
    """Split the slowdown of a model by replica, stage, operation and rank."""
    nodes = model.graph.nodes
    rank, dp, stage = (nodes[name].to_numpy() for name in ("rank", "dp", "stage"))
    operation = nodes["operation"].replace(MESSAGES).to_numpy()
    frames: list[pl.DataFrame] = []

    def split(part: str, key: np.ndarray) -> dict[Hashable, float]:
        found = {}
        for which in np.unique(key).tolist():
            ratio = model.only(key == which) / model.ideal
            found[which] = float(ratio.mean())
            frames.append(
                pl.DataFrame(
                    {
                        "part": part,
                        "which": str(which),
                        "step": model.timing.steps,
                        "slowdown": ratio,
                    }
                )
            )
        return found

    stages = split("stage", stage)
    operations = split("operation", operation)
    place = nodes.select("rank", "dp", "stage").unique("rank").sort("rank")
    if len(stages) > 1:
        replicas = split("dp", dp)
        share = [min(replicas[row[1]], stages[row[2]]) for row in place.iter_rows()]
    else:
        ranks = split("rank", rank)
        share = [ranks[row[0]] for row in place.iter_rows()]
        replicas = {}
        for row, value in zip(place.iter_rows(), share, strict=True):
            replicas[row[1]] = max(value, replicas.get(row[1], 0.0))
    by_rank = place.with_columns(pl.Series("slowdown", share)).sort(
        "slowdown", "rank", descending=[True, False]
    )
    worst = by_rank["rank"].head(-int(-len(by_rank) * WORST // 1)).to_list()
    last = stage == stage.max()
    return Attribution(
        by_replica=_sorted("dp", replicas),
        by_stage=_sorted("stage", stages),
        by_operation=_sorted("operation", operations),
        by_rank=by_rank,
        per_step=pl.concat(frames),
        worst=tuple(worst),
        explained_by_worst=model.explained(np.isin(rank, worst)),
        explained_by_last_stage=model.explained(last) if len(stages) > 1 else 0.0,
    )


def _sorted(name: str, found: dict[Hashable, float]) -> pl.DataFrame:
    frame = pl.DataFrame({name: list(found), "slowdown": list(found.values())})
    return frame.sort("slowdown", name, descending=[True, False])
