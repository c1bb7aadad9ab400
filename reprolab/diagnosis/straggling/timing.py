"""Measured starts and durations of every node at every step, and what of them is the rank's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.graph import Graph
from reprolab.errors import TraceError


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """Times of all nodes (rows) at all usable steps (columns), in seconds."""

    steps: np.ndarray
    """int64 [steps]"""
    start: np.ndarray
    """float64 [nodes, steps]: since the start of the step."""
    duration: np.ndarray
    """float64 [nodes, steps]: as measured; communications include waiting."""
    own: np.ndarray
    """float64 [nodes, steps]: without waiting for others. Of a communication, the time from its
    last member's start to this member's end; of other operations, the duration."""
    tokens: np.ndarray | None
    """float64 [nodes, steps]: how much work each was, NaN where unknown; None if nowhere known."""
    notes: tuple[str, ...]
    """Which steps were left out, and why."""

    @property
    def span(self) -> np.ndarray:
        """float64 [steps]: measured time of each step, from the first start to the last end."""
        return (self.start + self.duration).max(axis=0) - self.start.min(axis=0)


def time(graph: Graph, operations: pl.DataFrame, *, synchronised: bool) -> Timing:
    """Lay measured times out on a graph.

    Steps that lack an operation of the graph, or have one too many, are left out with a note.

    Parameters
    ----------
    graph : Graph
    operations : polars.DataFrame
        With the columns of ``OPERATIONS``.
    synchronised : bool
        Whether starts on different ranks may be compared.

    Raises
    ------
    TraceError
        If no step is complete.
    """
    key = ["rank", "operation", "sequence"]
    index = graph.nodes.select(*key, pl.int_range(pl.len(), dtype=pl.Int32).alias("node"))
    placed = operations.select("step", *key, "start", "duration", "tokens").join(
        index, on=key, how="left"
    )
    whole = (
        placed.group_by("step")
        .agg(
            pl.col("node").n_unique().alias("found"),
            pl.col("node").null_count().alias("foreign"),
            pl.len().alias("rows"),
        )
        .sort("step")
    )
    count = len(graph.nodes)
    fits = (pl.col("found") == count) & (pl.col("rows") == count) & (pl.col("foreign") == 0)
    steps = whole.filter(fits)["step"].to_numpy()
    odd = whole.filter(~fits)
    if not len(steps):
        row = odd.row(0, named=True)
        raise TraceError(
            f"no step is complete: expected {count} operations over all ranks, step {row['step']} "
            f"has {row['rows']}, {row['foreign']} of them unknown to the first step"
        )
    placed = placed.filter(pl.col("step").is_in(steps))
    lane = np.searchsorted(steps, placed["step"].to_numpy())
    node = placed["node"].to_numpy()
    start, duration = np.empty((2, count, len(steps)))
    start[node, lane] = placed["start"].to_numpy()
    duration[node, lane] = placed["duration"].to_numpy()
    tokens = None
    if placed["tokens"].null_count() < len(placed):
        tokens = np.full(start.shape, np.nan)
        tokens[node, lane] = placed["tokens"].cast(pl.Float64).to_numpy()
    start -= start.min(axis=0)
    notes: tuple[str, ...] = ()
    if len(odd):
        listed = ", ".join(map(str, odd["step"].head(5).to_list()))
        notes = (
            f"{len(odd)} of {len(whole)} steps have other operations than the rest and were left "
            f"out: {listed}{', ...' if len(odd) > 5 else ''}",
        )
    own = own_time(graph, start, duration, synchronised=synchronised)
    return Timing(steps, start, duration, own, tokens, notes)


def own_time(
    graph: Graph, start: np.ndarray, duration: np.ndarray, *, synchronised: bool
) -> np.ndarray:
    """What of each duration is not waiting for others.

    With synchronised clocks, a communication's own time runs from its last member's start to this
    member's end. Without, it is the shortest duration among its members: the last one to come does
    not wait, and its duration needs no other rank's clock.
    """
    if not synchronised:
        return np.where(graph.meets[:, None], joint(graph, duration, np.minimum), duration)
    last = joint(graph, start, np.maximum)
    return np.where(graph.meets[:, None], np.maximum(start + duration - last, 0.0), duration)


def joint(graph: Graph, values: np.ndarray, measure: np.ufunc) -> np.ndarray:
    """Reduce `values`, [nodes, steps], over the members of each communication.

    Returns
    -------
    float64 [nodes, steps]
        The same number for all members.
    """
    members, bounds = graph.schedule.members, graph.schedule.bounds
    reduced = measure.reduceat(values[members], bounds[:-1], axis=0)
    found = np.empty_like(values)
    found[members] = np.repeat(reduced, np.diff(bounds), axis=0)
    return found
