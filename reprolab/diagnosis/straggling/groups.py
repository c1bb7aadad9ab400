"""Which operations of different ranks are one communication, and what their ends say of clocks."""

from __future__ import annotations

import polars as pl

from reprolab.diagnosis.straggling.clocks import Clocks, align
from reprolab.tables.operations import BARRIER, EXCHANGE

_ACROSS_REPLICAS = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_WITHIN_REPLICA = ("embedding-grads-all-reduce",)
_ALONE = ("layernorm-grads-all-reduce",)


def with_groups(operations: pl.DataFrame) -> pl.DataFrame:
    """Name the group of every collective that has none.

    The collectives of pipeline training run across the replicas of a stage, within a replica, or
    over all ranks, as their names say. Others are taken to run over all ranks; the n-th of a name
    on one rank then belongs to the n-th of that name on the others.
    """
    name, number = pl.col("operation"), pl.format("{} #{}", "operation", "sequence")
    place = (
        pl.when(name.is_in(_ACROSS_REPLICAS))
        .then(pl.format("{} of stage {}", number, "stage"))
        .when(name.is_in(_WITHIN_REPLICA))
        .then(pl.format("{} of replica {}", number, "dp"))
        .when(~name.is_in(_ALONE))
        .then(number)
    )
    collective = pl.col("role").is_in([BARRIER, EXCHANGE])
    unnamed = operations.filter(collective & pl.col("group").is_null()).height
    if not unnamed:
        return operations
    return operations.with_columns(
        pl.when(collective).then(pl.coalesce("group", place)).otherwise("group").alias("group")
    )


def clocks_of(operations: pl.DataFrame) -> Clocks:
    """Compare the ranks' clocks by the barrier-like collectives they share."""
    barriers = (pl.col("role") == BARRIER) & pl.col("group").is_not_null()
    joint = operations.filter(barriers)
    joint = joint.filter(pl.col("rank").n_unique().over("step", "group") > 1)
    number = joint.select(pl.struct("step", "group").rank("dense") - 1).to_series()
    return align(
        joint["rank"].to_numpy(),
        joint["step"].to_numpy(),
        number.to_numpy(),
        (joint["start"] + joint["duration"]).to_numpy(),
    )


def on_one_clock(operations: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """Bring starts and durations to the reference clock."""
    if not clocks.corrected:
        return operations
    rank = pl.DataFrame(
        {"rank": clocks.ranks, "_row": range(len(clocks.ranks))},
        schema_overrides={"rank": pl.Int32},
    )
    step = pl.DataFrame(
        {"step": clocks.steps, "_lane": range(len(clocks.steps))},
        schema_overrides={"step": pl.Int64},
    )
    placed = (
        operations.select(
            "rank", "step", "start", (pl.col("start") + pl.col("duration")).alias("end")
        )
        .join(rank, on="rank", how="left", maintain_order="left")
        .join(step, on="step", how="left", maintain_order="left")
    )
    known = (placed["_row"].is_not_null() & placed["_lane"].is_not_null()).to_numpy()
    start, end = placed["start"].to_numpy().copy(), placed["end"].to_numpy().copy()
    row, lane = (placed[name].filter(known).to_numpy() for name in ("_row", "_lane"))
    start[known] = clocks.correct(row, lane, start[known])
    end[known] = clocks.correct(row, lane, end[known])
    return operations.with_columns(
        pl.Series("start", start), pl.Series("duration", (end - start).clip(min=0))
    )
