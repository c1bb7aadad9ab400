"""Who was slow, when, in what, and for how long: the episodes of a trace."""

from __future__ import annotations

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.changes import stretches
from reprolab.diagnosis.straggling.excess import Excess
from reprolab.diagnosis.straggling.families import FAMILIES
from reprolab.diagnosis.straggling.spikes import period, spikes

PERSISTENT, TRANSIENT, PERIODIC, RECURRENT = "persistent", "transient", "periodic", "recurrent"

GATE = 0.01
"""Share of the step below which slowness does not matter, however certain it is."""

RESOLUTION = 1e-4
"""Share of the step that noise is taken to be at least; timers and float32 are no better."""

EPISODES = pl.Schema(
    {
        "rank": pl.Int32(),
        "stage": pl.Int32(),
        # One of FAMILIES, and one of the kinds above.
        "family": pl.String(),
        "kind": pl.String(),
        "first_step": pl.Int64(),
        "last_step": pl.Int64(),
        # Steps it happened at; of periodic ones every `period`-th.
        "steps": pl.Int32(),
        "period": pl.Int32(),
        # Mean seconds beyond the peers at these steps, as a share of the rank's own time in this
        # family there, and of the step.
        "seconds": pl.Float64(),
        "slower": pl.Float64(),
        "share": pl.Float64(),
        # Standard deviations of a single step.
        "score": pl.Float64(),
    }
)
"""Columns of the table of episodes."""


def episodes(found: Excess, span: np.ndarray) -> tuple[pl.DataFrame, np.ndarray]:
    """Find all episodes of slowness.

    Parameters
    ----------
    found : Excess
        Time beyond the peers.
    span : float64 [steps]
        Time of each step.

    Returns
    -------
    polars.DataFrame
        With the columns of ``EPISODES``, the most time lost first.
    bool [families, ranks, steps]
        Rank-steps that belong to an episode.
    """
    step = float(np.median(span))
    marks = np.zeros(found.beyond.shape, bool)
    rows: list[dict[str, object]] = []
    for family in range(len(FAMILIES)):
        beyond = found.beyond[family]
        if beyond.shape[1] < 2 or np.max(np.abs(beyond), initial=0.0) < RESOLUTION * step:
            continue
        noise = max(found.noise[family], RESOLUTION * step)
        rest = beyond.copy()
        for row, first, after in stretches(beyond, noise, GATE * step):
            rest[row, first:after] = np.nan
            if beyond[row, first:after].mean() < GATE * step:
                continue
            marks[family, row, first:after] = True
            at = np.arange(first, after)
            rows.append(_row(found, family, row, at, PERSISTENT, None, noise, span))
        single = spikes(rest, noise, GATE * step)
        marks[family] |= single
        for row in np.flatnonzero(single.any(axis=1)).tolist():
            at = np.flatnonzero(single[row])
            every = period(found.steps[at])
            kind = PERIODIC if every else RECURRENT if len(at) > 2 else TRANSIENT
            rows.append(_row(found, family, row, at, kind, every, noise, span))
    frame = pl.DataFrame(rows, EPISODES, orient="row")
    lost = pl.col("seconds") * pl.col("steps")
    return frame.sort(lost, "rank", descending=[True, False]), marks


def _row(
    found: Excess,
    family: int,
    row: int,
    at: np.ndarray,
    kind: str,
    every: int | None,
    noise: float,
    span: np.ndarray,
) -> dict[str, object]:
    beyond = found.beyond[family, row, at]
    own = found.seconds[family, row, at]
    usual = own.sum() - beyond.sum()
    return {
        "rank": int(found.ranks[row]),
        "stage": int(found.stage[row]),
        "family": FAMILIES[family],
        "kind": kind,
        "first_step": int(found.steps[at[0]]),
        "last_step": int(found.steps[at[-1]]),
        "steps": len(at),
        "period": every,
        "seconds": float(beyond.mean()),
        "slower": float(beyond.sum() / usual) if usual > 0 else float("inf"),
        "share": float(beyond.sum() / span[at].sum()),
        "score": float(beyond.mean() / noise),
    }
