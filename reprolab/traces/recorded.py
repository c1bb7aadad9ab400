"""Runs that reprolab itself recorded, as traces.

A rank's spans follow each other: ``data``, ``forward``, ``backward``, then ``reduce``, the wait for
the last gradients, which no rank leaves before all have entered; then ``optimizer``. How much work
a step was is taken from the bytes of its batches. The span ``capture`` is a sum over the places
where recording ran and overlaps the others, so it is left out.
"""

from __future__ import annotations

import polars as pl

from reprolab.errors import TraceError
from reprolab.store import Run
from reprolab.tables.consolidate import table
from reprolab.tables.operations import BARRIER, WORK, conform
from reprolab.traces.trace import Trace

REDUCE, CAPTURE = "reduce", "capture"


def recorded(run: Run) -> Trace:
    """Operations of a run, finished or still being written.

    Of steps that several attempts recorded, the newest attempt counts.

    Raises
    ------
    TraceError
        If no rank has recorded a span yet.
    """
    spans = table(run, "spans").filter(pl.col("name") != CAPTURE, pl.col("step").is_not_null())
    if spans.is_empty():
        raise TraceError("the run has no spans yet", run=run.name)
    newest = pl.col("attempt") == pl.col("attempt").max().over("rank", "step")
    spans = spans.filter(newest)
    work = _work(table(run, "batches"))
    met = pl.col("name") == REDUCE
    computes = pl.col("name").is_in(["forward", "backward"])
    operations = spans.join(work, on=["rank", "step"], how="left").select(
        "rank",
        "step",
        pl.col("name").alias("operation"),
        pl.when(met).then(pl.lit(BARRIER)).otherwise(pl.lit(WORK)).alias("role"),
        "start",
        "duration",
        pl.when(met).then(pl.lit("reduce")).otherwise(None).alias("group"),
        pl.when(computes).then("tokens").otherwise(None).alias("tokens"),
    )
    frame, notes = conform(operations, source=str(run.path))
    if run.missing_ranks:
        listed = ", ".join(map(str, run.missing_ranks))
        notes.append(f"Ranks without records: {listed}.")
    world = max((attempt.world_size for attempt in run.attempts), default=len(run.ranks))
    return Trace(frame, "run", str(run.path), world, notes=tuple(notes))


def _work(batches: pl.DataFrame) -> pl.DataFrame:
    """Bytes of the batches of each rank and step, as ``tokens``."""
    return (
        batches.filter(pl.col("step").is_not_null())
        .filter(pl.col("attempt") == pl.col("attempt").max().over("rank", "step"))
        .with_columns(
            pl.col("sizes").str.json_path_match("$.bytes").cast(pl.Int64, strict=False).alias("_b")
        )
        .group_by("rank", "step")
        .agg(pl.col("_b").sum().alias("tokens"))
    )
