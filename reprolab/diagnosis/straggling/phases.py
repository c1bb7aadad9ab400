"""The same analysis from phase sums alone: how long each rank spent on what at each step.

Sums do not say in which order things happened nor which microbatch took how long. The order is
taken to be the usual one: one forward, one backward in a pipeline, otherwise work first and
collectives last. All operations of a phase get the same share of its sum, which is exact for the
ideal step, the same on average for the ranks and stages, and blind to differences between the
microbatches of a rank. What those cost shows all the same, because a rank's phases add up to its
step: what the replay of the shares leaves unexplained of that is kept as *hidden* time.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.clocks import align
from reprolab.diagnosis.straggling.groups import with_groups
from reprolab.diagnosis.straggling.layout import Layout, is_pipeline
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.pipeline import (
    BACKWARD,
    FORWARD,
    GATHER,
    MESSAGES,
    pipeline_graph,
)
from reprolab.diagnosis.straggling.serial import serial_graph, serial_operations
from reprolab.diagnosis.straggling.timing import Timing, time
from reprolab.errors import TraceError
from reprolab.tables.operations import BARRIER, OPERATIONS, PHASES, RECV, SEND, WORK, role_of

ERROR = 0.05
"""Relative error of S that was measured against the operations themselves, rounded up."""

NOTE = (
    "Only sums by phase were recorded: S is good to about 5 %, and which microbatches took longer "
    "does not show."
)


def is_phases(frame: pl.DataFrame) -> bool:
    """Whether a table has phases rather than operations."""
    return {"rank", "step", "phase", "seconds"} <= set(frame.columns)


def conform_phases(frame: pl.DataFrame) -> pl.DataFrame:
    """Bring a table to ``PHASES``: ``rank``, ``step``, ``phase`` and ``seconds`` have to be there.

    Raises
    ------
    TraceError
        If a column has a wrong type, a sum is negative or missing, or nothing is left.
    """
    known = {name: dtype for name, dtype in PHASES.items() if name in frame.columns}
    try:
        frame = frame.select(pl.col(name).cast(dtype) for name, dtype in known.items())
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"a column of the phases has the wrong type: {error}") from error
    good = pl.col("seconds").is_finite() & (pl.col("seconds") >= 0)
    bad = frame.filter(~good.fill_null(False))
    if len(bad) or frame.is_empty():
        where = bad.row(0, named=True) if len(bad) else {}
        raise TraceError(
            f"every phase needs a sum of at least 0 seconds; got {where.get('seconds')}",
            rank=where.get("rank"),
            step=where.get("step"),
        )
    defaults = {
        "role": pl.col("phase").map_elements(role_of, return_dtype=pl.String),
        "operations": pl.lit(1, pl.Int32),
        "dp": pl.col("rank"),
        "stage": pl.lit(0, pl.Int32),
    }
    return frame.with_columns(
        default.alias(name) for name, default in defaults.items() if name not in known
    ).select(list(PHASES))


def lay_out_phases(phases: pl.DataFrame) -> Layout:
    """Find a graph and times for a table of phases.

    Parameters
    ----------
    phases : polars.DataFrame
        With the columns of ``PHASES``.

    Raises
    ------
    TraceError
        If no step has records of all ranks.
    """
    operations = with_groups(_spread(phases))
    notes = [NOTE]
    if is_pipeline(operations):
        graph = pipeline_graph(operations)
        timing = time(graph, operations, synchronised=False)
        kind = "pipeline"
    else:
        operations, left_out = serial_operations(
            _one_after_the_other(operations), synchronised=False
        )
        graph = serial_graph(operations)
        timing = time(graph, operations, synchronised=False)
        notes += left_out
        kind = "serial"
    timing = _without_waiting(graph.nodes, timing)
    bare = Model(graph, timing)
    measured = _measured(phases, timing.steps)
    hidden = np.maximum(measured - bare.actual, 0.0)
    nothing = np.empty(0, np.int64)
    clocks = align(nothing, nothing, nothing, np.empty(0))
    model = Model(graph, timing, hidden)
    return Layout(operations, model, clocks, kind, (*notes, *timing.notes))


def _one_after_the_other(operations: pl.DataFrame) -> pl.DataFrame:
    """Let each operation of a rank start when the one before has ended."""
    ended = pl.col("duration").cum_sum().over("rank")
    ordered = operations.sort("rank", "step", "start", maintain_order=True)
    return ordered.with_columns((ended - pl.col("duration")).alias("start"))


def _measured(phases: pl.DataFrame, steps: np.ndarray) -> np.ndarray:
    """Time of each step: what the busiest rank's phases add up to.

    Sends run beside what follows them; all else of a rank comes one after the other.
    """
    sums = (
        phases.filter(pl.col("role") != SEND)
        .group_by("step", "rank")
        .agg(pl.col("seconds").sum())
        .group_by("step")
        .agg(pl.col("seconds").max())
        .sort("step")
    )
    return sums.filter(pl.col("step").is_in(steps))["seconds"].to_numpy()


def _without_waiting(nodes: pl.DataFrame, timing: Timing) -> Timing:
    """Take the waiting out of messages, whose sums are mostly that.

    Some rank at some step hardly waited: its mean is what a message itself takes.
    """
    own = timing.own.copy()
    role, operation = nodes["role"].to_numpy(), nodes["operation"].to_numpy()
    for name in np.unique(operation[np.isin(role, [SEND, RECV])]):
        some = operation == name
        own[some] = own[some].min()
    return Timing(timing.steps, timing.start, timing.duration, own, None, timing.notes)


def _spread(phases: pl.DataFrame) -> pl.DataFrame:
    """One operation each for a phase's share; starts only tell the order."""
    stages = int(phases["stage"].max()) + 1  # type: ignore[arg-type]  # it is an integer column
    number = (
        phases.filter(pl.col("phase") == FORWARD)
        .group_by("rank")
        .agg(pl.col("operations").max().alias("_count"))
    )
    counts = dict(number.iter_rows())
    phases = _real_messages(phases.join(number, on="rank", how="left"), stages)
    rows = phases.with_columns(
        pl.int_ranges(pl.max_horizontal("operations", 1)).alias("sequence"),
        (pl.col("seconds") / pl.max_horizontal("operations", 1)).alias("duration"),
    ).explode("sequence", empty_as_null=False)
    pairs = rows.select("rank", "stage", "phase", "sequence", "role").unique()
    places = [
        _place(phase, role, sequence, stage, stages, counts.get(rank, 0))
        for rank, stage, phase, sequence, role in pairs.iter_rows()
    ]
    # So far apart that nothing reaches into what comes after it.
    apart = 4.0 * float(rows["duration"].max() or 0.0) + 1.0  # type: ignore[arg-type]
    pairs = pairs.with_columns(apart * pl.Series("start", places, pl.Float64))
    part = pl.when(pl.col("phase").is_in(MESSAGES)).then(None).otherwise(0)
    computes = pl.col("phase").is_in([FORWARD, BACKWARD])
    found = rows.join(pairs, on=["rank", "stage", "phase", "sequence", "role"]).select(
        "rank",
        "step",
        pl.col("phase").alias("operation"),
        "role",
        "start",
        "duration",
        "sequence",
        "dp",
        "stage",
        part.alias("part"),
        pl.when(computes).then("sequence").otherwise(None).alias("microbatch"),
        pl.lit(None, pl.String).alias("group"),
        pl.lit(None, pl.Int64).alias("tokens"),
        pl.lit(None, pl.Int64).alias("bytes"),
    )
    return found.cast(OPERATIONS).sort("rank", "step", "start")


def _real_messages(phases: pl.DataFrame, stages: int) -> pl.DataFrame:
    """One message a microbatch between neighbouring stages; recorders also note some that are not.

    ``_count`` holds the microbatches of the rank.
    """
    name, stage = pl.col("phase"), pl.col("stage")
    message = name.is_in(MESSAGES)
    onward = name.is_in(["forward-send", "backward-recv"])
    real = pl.when(onward).then(stage < stages - 1).otherwise(stage > 0)
    number = pl.when(message).then(pl.col("_count")).otherwise("operations")
    return phases.filter(~message | real).with_columns(number.fill_null(1).alias("operations"))


def _place(phase: str, role: str, sequence: int, stage: int, stages: int, count: int) -> float:
    """Where an operation stands in the order of its rank, before any time passes."""
    if phase in (FORWARD, BACKWARD, *MESSAGES):
        forward = phase.startswith("forward")
        turn = _turn(sequence, stage, stages, count, forward=forward)
        return turn + (-0.25 if role == RECV else 0.5 if role == SEND else 0.0)
    if phase == GATHER:
        return -1.0 + 0.001 * sequence
    last = 2.0 * max(count, 1) + 1
    return last + (1.0 if role == BARRIER else 0.0 if role == WORK else 0.5) + 0.001 * sequence


def _turn(number: int, stage: int, stages: int, count: int, *, forward: bool) -> float:
    """Turn of a forward or backward computation among those of its stage.

    A stage first runs ahead by the stages behind it, then forward and backward alternate.
    """
    ahead = min(stages - stage - 1, count)
    if forward:
        return float(number if number < ahead else ahead + 2 * (number - ahead))
    alternating = count - ahead
    return float(ahead + 2 * number + 1 if number < alternating else count + number)
