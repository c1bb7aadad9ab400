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
        # Seconds that the rank would cost the mean step if it alone were slow, and the same as a
        # share of the step: two slow ranks do not excuse each other.
        "seconds": pl.Float64(),
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
    saved: float
    """Share of the mean step that would be saved, had the culprits done as their peers did."""
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
        return Finding(Cause.ALONE, pl.DataFrame(schema=CULPRITS), 0.0, few)
    culprits, saved = _blame(model, over, _late_once(over, last) if few else marks)
    if culprits.height:
        cause = _OF_FAMILY[str(culprits["family"][0])]
    elif model.slowdown < NEGLIGIBLE:
        cause = Cause.NONE
    else:
        cause = _OF_SHARE[max(parts, key=lambda kind: parts[kind])]
    return Finding(cause, culprits, saved, few)


def _late_once(over: Excess, last: pl.DataFrame) -> np.ndarray:
    """Without enough steps, only the rank that nobody had to wait for can be to blame."""
    late = np.zeros(over.beyond.shape, bool)
    if not last.is_empty():
        row = int(np.searchsorted(over.ranks, last["rank"][0]))
        late[:, row] = over.beyond[:, row] > 0
    return late


def _blame(model: Model, over: Excess, marks: np.ndarray) -> tuple[pl.DataFrame, float]:
    """Ranks that cost enough, and the share of the step that all of them together cost."""
    mean = float(model.actual.mean())
    repaired = float(model.steps_with(as_peers(model, over, marks)).mean())
    rows = []
    for row in np.flatnonzero(marks.any(axis=(0, 2))).tolist():
        others = marks.copy()
        others[:, row] = False
        alone = float(model.steps_with(as_peers(model, over, others)).mean()) - repaired
        lost = np.where(marks, over.beyond, 0.0).clip(min=0)[:, row].sum(axis=1)
        rows.append(
            {
                "rank": int(over.ranks[row]),
                "stage": int(over.stage[row]),
                "family": families.FAMILIES[int(lost.argmax())],
                "seconds": alone,
                "share": alone / mean,
            }
        )
    frame = pl.DataFrame(rows, CULPRITS, orient="row").filter(pl.col("share") >= GATE)
    chosen = marks & np.isin(over.ranks, frame["rank"].to_numpy())[:, None]
    saved = 1 - float(model.steps_with(as_peers(model, over, chosen)).mean()) / mean
    return frame.sort("seconds", "rank", descending=[True, False]), saved


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
