"""Why steps take longer than they should: the classes, and the rule that picks one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling import families, shares
from reprolab.diagnosis.straggling.changes import SHORTEST
from reprolab.diagnosis.straggling.episodes import GATE
from reprolab.diagnosis.straggling.excess import Excess
from reprolab.diagnosis.straggling.model import Model

NEGLIGIBLE = 1.03
"""Slowdown below which nothing straggles (the published analysis looks no further either)."""


class Cause(Enum):
    """A class of slowness: its name, and what to do about it."""

    NONE = "no straggler", "Nothing needs to be done."
    ALONE = (
        "one rank only, nothing to compare",
        "Record the other ranks to learn who waits for whom.",
    )
    COMPUTE = (
        "slow computation",
        "Look at clock rates, temperature and neighbours of that rank's device, and move or "
        "replace the rank; until then give it fewer microbatches.",
    )
    DATA = (
        "slow data loading",
        "Prefetch more batches or add loader workers on that rank, and look at its storage.",
    )
    HOST = (
        "garbage collection or the host",
        "Collect garbage on all ranks at the same step, pin processes to cores, and look at what "
        "else runs on that host.",
    )
    CHECKPOINT = (
        "slow checkpoints",
        "Save asynchronously or less often, and look at that rank's storage.",
    )
    COMMUNICATION = (
        "slow communication",
        "Look at the links and switches between these ranks, and test their bandwidth.",
    )
    PARTITION = (
        "uneven partition",
        "Give every rank the same amount of work rather than the same number of samples: sort, "
        "pack or bucket sequences by length.",
    )
    STAGE = (
        "stage imbalance",
        "Split the layers anew, so that all pipeline stages take equally long.",
    )
    RANKS = (
        "uneven ranks",
        "The ranks differ lastingly, each by little; share microbatches out by measured speed.",
    )
    MOMENT = (
        "noise from moment to moment",
        "No rank is to blame; fewer or larger synchronised steps average it out.",
    )

    def __init__(self, title: str, advice: str) -> None:
        self.title = title
        self.advice = advice


_OF_FAMILY = {
    families.COMPUTE: Cause.COMPUTE,
    families.DATA: Cause.DATA,
    families.HOST: Cause.HOST,
    families.CHECKPOINT: Cause.CHECKPOINT,
    families.COMMUNICATION: Cause.COMMUNICATION,
}
_OF_SHARE = {
    shares.STAGE: Cause.STAGE,
    shares.RANK: Cause.RANKS,
    shares.PARTITION: Cause.PARTITION,
    shares.MOMENT: Cause.MOMENT,
    shares.COMMUNICATION: Cause.COMMUNICATION,
}

CULPRITS = pl.Schema(
    {
        "rank": pl.Int32(),
        "stage": pl.Int32(),
        "family": pl.String(),
        # Seconds of the mean step that would be saved, had the rank done as its peers did, and the
        # same as a share of it.
        "saved": pl.Float64(),
        "share": pl.Float64(),
    }
)
"""Columns of the table of ranks to blame."""


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """What holds the training up."""

    cause: Cause
    culprits: pl.DataFrame
    """Ranks whose slowness costs at least `GATE` of the step, the costliest first."""
    recorded_once: bool
    """Whether there are too few steps to tell lasting slowness from a moment's."""


def find(
    model: Model,
    parts: dict[str, float],
    episodes: pl.DataFrame,
    marks: np.ndarray,
    over: Excess,
    last: pl.DataFrame,
) -> Finding:
    """Pick the class.

    Parameters
    ----------
    model : Model
    parts : dict
        What the slowdown is made of (`shares`).
    episodes : polars.DataFrame
        Episodes of slowness.
    marks : bool [families, ranks, steps]
        Rank-steps in an episode.
    over : Excess
        Time beyond the peers.
    last : polars.DataFrame
        Lateness by rank, the least waiting first.
    """
    few = len(model.timing.steps) < SHORTEST
    if len(over.ranks) == 1:
        return Finding(Cause.ALONE, _costly([]), few)
    culprits = _of_few_steps(model, over, last) if few else _of_episodes(model, over, marks)
    if culprits.height:
        cause = _OF_FAMILY[str(culprits["family"][0])]
    elif model.slowdown < NEGLIGIBLE:
        cause = Cause.NONE
    else:
        cause = _OF_SHARE[max(parts, key=lambda kind: parts[kind])]
    return Finding(cause, culprits, few)


def _of_episodes(model: Model, over: Excess, marks: np.ndarray) -> pl.DataFrame:
    rows = []
    for row in np.flatnonzero(marks.any(axis=(0, 2))).tolist():
        one = np.zeros_like(marks)
        one[:, row] = marks[:, row]
        rows.append(_culprit(model, over, row, one))
    return _costly(rows)


def _of_few_steps(model: Model, over: Excess, last: pl.DataFrame) -> pl.DataFrame:
    """Without enough steps, only the rank that nobody had to wait for can be to blame."""
    if last.is_empty() or len(over.ranks) < 2:
        return _costly([])
    row = int(np.searchsorted(over.ranks, last["rank"][0]))
    late = np.zeros(over.beyond.shape, bool)
    late[:, row] = over.beyond[:, row] > 0
    return _costly([_culprit(model, over, row, late)])


def _culprit(model: Model, over: Excess, row: int, marks: np.ndarray) -> dict[str, object]:
    lost = np.where(marks, over.beyond, 0.0).clip(min=0)[:, row].sum(axis=1)
    saved = float((model.actual - model.steps_with(as_peers(model, over, marks))).mean())
    return {
        "rank": int(over.ranks[row]),
        "stage": int(over.stage[row]),
        "family": families.FAMILIES[int(lost.argmax())],
        "saved": saved,
        "share": saved / float(model.actual.mean()),
    }


def _costly(rows: list[dict[str, object]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, CULPRITS, orient="row")
    return frame.filter(pl.col("share") >= GATE).sort("saved", "rank", descending=[True, False])


def as_peers(model: Model, over: Excess, marks: np.ndarray) -> np.ndarray:
    """Durations, had the marked ranks done as their peers did, float64 [nodes, steps].

    Parameters
    ----------
    marks : bool [families, ranks, steps]
        Where to take the time beyond the peers off, in proportion from all operations of a family.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1 - np.where(over.seconds > 0, over.beyond / over.seconds, 0.0).clip(0.0, 1.0)
    factor = np.where(marks, ratio, 1.0)
    row = np.searchsorted(over.ranks, model.graph.nodes["rank"].to_numpy())
    return model.timing.own * factor[families.families_of(model.graph), row]
