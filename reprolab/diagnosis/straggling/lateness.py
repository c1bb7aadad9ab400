"""Who came last to each collective.

In a barrier-like collective the last rank to come waits least, so the lag behind the first one is
``lag_r = max_j d_j - d_r`` from durations alone, whatever the clocks say. This holds as long as all
ranks leave together: the spread of the ends is the gate. Where it does not hold (a broadcast's root
leaves early, so does a sender) lag comes from the starts, on aligned clocks.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.clocks import AGREE
from reprolab.diagnosis.straggling.model import Model
from reprolab.tables.operations import BARRIER, EXCHANGE, RECV, SEND

LATENESS = pl.Schema(
    {
        "step": pl.Int64(),
        "operation": pl.String(),
        "sequence": pl.Int32(),
        "group": pl.Int32(),
        "rank": pl.Int32(),
        # Seconds after the first member came, seconds until the last one came, and whether this
        # member was the last.
        "lag": pl.Float64(),
        "wait": pl.Float64(),
        "last": pl.Boolean(),
        # "durations" or "starts": what the lag was read from.
        "by": pl.String(),
    }
)
"""Columns of the table of lateness: one row a member of a communication at a step."""

SHARE = 0.1
"""Ends may spread by this share of the longest wait and still count as one moment."""


def lateness(model: Model, *, comparable: bool, messages: bool = False) -> pl.DataFrame:
    """Lag and wait of every member of every collective, with the columns of ``LATENESS``.

    Parameters
    ----------
    model : Model
        Its starts are used where durations do not tell.
    comparable : bool
        Whether starts of different ranks may be compared at all; if not, collectives whose members
        leave at different times have no lag.
    messages : bool
        Whether to include sends and receives.
    """
    graph, timing = model.graph, model.timing
    roles = [BARRIER, EXCHANGE, *([SEND, RECV] if messages else [])]
    wanted = graph.nodes["role"].is_in(roles).to_numpy() & (graph.size > 1)
    node = np.flatnonzero(wanted)
    if not len(node):
        return pl.DataFrame(schema=LATENESS)
    node = node[np.argsort(graph.group[node], kind="stable")]
    group = graph.group[node]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    count = np.diff(np.append(first, len(node)))

    start, duration = timing.start[node], timing.duration[node]

    def over(measure: np.ufunc, values: np.ndarray) -> np.ndarray:
        return np.repeat(measure.reduceat(values, first, axis=0), count, axis=0)

    longest, shortest = over(np.maximum, duration), over(np.minimum, duration)
    barrier = (graph.nodes["role"].to_numpy()[node] == BARRIER)[:, None]
    if comparable:
        end = start + duration
        spread = over(np.maximum, end) - over(np.minimum, end)
        together = spread <= np.maximum(SHARE * (longest - shortest), AGREE)
    else:
        together = np.broadcast_to(barrier, duration.shape)
    latest, earliest = over(np.maximum, start), over(np.minimum, start)
    by_starts = (start - earliest, latest - start) if comparable else (np.nan, np.nan)
    lag = np.where(together, longest - duration, by_starts[0])
    wait = np.where(together, duration - shortest, by_starts[1])
    least = over(np.minimum, np.nan_to_num(wait, nan=np.inf))
    is_last = (wait == least) & np.isfinite(least)
    steps, nodes = len(timing.steps), len(node)
    described = graph.nodes.select("operation", "sequence", "rank")[node]
    return (
        described.select(pl.all().repeat_by(steps).explode(empty_as_null=False))
        .with_columns(
            pl.Series("step", np.tile(timing.steps, nodes), pl.Int64),
            pl.Series("group", np.repeat(group, steps), pl.Int32),
            pl.Series("lag", lag.ravel()),
            pl.Series("wait", wait.ravel()),
            pl.Series("last", is_last.ravel()),
            pl.Series("by", np.where(together, "durations", "starts").ravel()),
        )
        .select(list(LATENESS))
        .cast(LATENESS)
    )


def by_rank(late: pl.DataFrame) -> pl.DataFrame:
    """Sum lateness over a trace, the latest rank first.

    Returns
    -------
    polars.DataFrame
        ``rank``, ``times_last`` of ``collectives``, ``lag`` and ``wait`` in seconds.
    """
    return (
        late.group_by("rank")
        .agg(
            pl.col("last").sum().alias("times_last"),
            pl.len().alias("collectives"),
            pl.col("lag", "wait").sum(),
        )
        .sort("wait", "rank")
    )


def heat(late: pl.DataFrame) -> pl.DataFrame:
    """Lag of each rank at each step in seconds, the sum over the step's collectives."""
    return late.group_by("rank", "step").agg(pl.col("lag").sum()).sort("rank", "step")
