"""The graph of a step in which each rank does one thing after the other and meets the others.

This needs no knowledge of the training: each rank's operations are taken in the order of their
starts, and where they overlap, only what sticks out beyond the earlier ones counts, so that a
rank's times add up to its step. Between one communication and the next a rank has one node a name
of work, and one, ``host``, for time in which nothing was recorded; that includes coming late into
the step.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.graph import NODES, Graph, assemble
from reprolab.errors import TraceError
from reprolab.tables.operations import OPERATIONS, WORK

HOST = "host"
"""Name of time in which nothing was recorded."""

_MEETS = pl.col("group").is_not_null()
"""A communication whose peers are unknown is something its rank does alone."""


def serial_operations(
    operations: pl.DataFrame, *, synchronised: bool
) -> tuple[pl.DataFrame, list[str]]:
    """Bring operations to the same nodes at every step.

    Parameters
    ----------
    operations : polars.DataFrame
        With the columns of ``OPERATIONS``, on one clock where that was possible.
    synchronised : bool
        Whether times of different ranks may be compared; if not, each rank's step starts with its
        own first operation.

    Returns
    -------
    polars.DataFrame
        With the columns of ``OPERATIONS``; ``sequence`` counts the communications before, and every
        step has the same rows.
    list of str
        Which steps and ranks were left out.
    """
    operations, notes = _same_meetings(operations)
    placed = _beyond_the_earlier(operations, synchronised=synchronised)
    place = ("rank", "step")
    work = placed.filter(~_MEETS)
    idle = placed.filter(pl.col("gap") > 0).with_columns(
        pl.lit(HOST).alias("operation"),
        pl.lit(WORK).alias("role"),
        pl.lit(None, pl.String).alias("group"),
        pl.col("gap").alias("net"),
        (pl.col("from") - pl.col("gap")).alias("from"),
    )
    summed = (
        pl.concat([work, idle])
        .group_by(*place, "operation", "segment")
        .agg(
            pl.col("role", "dp", "stage").first(),
            pl.col("from").min(),
            pl.col("net").sum(),
            # Polars' sum of nothing is 0; unknown work has to stay unknown.
            *(
                pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
                for name in ("tokens", "bytes")
            ),
        )
    )
    # A node exists at every step, and lasts no time where the rank did no such work.
    slots = summed.group_by("rank", "segment", "operation").agg(
        pl.col("role", "dp", "stage").first(), pl.col("from").mean().alias("_usual")
    )
    steps = operations.select("step").unique()
    filled = (
        slots.join(steps, how="cross")
        .join(
            summed.select(*place, "segment", "operation", "from", "net", "tokens", "bytes"),
            on=[*place, "segment", "operation"],
            how="left",
        )
        .with_columns(pl.col("net").fill_null(0.0), pl.lit(None, pl.String).alias("group"))
    )
    begin = placed.group_by(*place, "segment").agg(pl.col("from").min().alias("_begin"))
    filled = filled.join(begin, on=[*place, "segment"], how="left").with_columns(
        pl.coalesce("from", "_begin").fill_null(0.0).alias("from")
    )
    columns = ["rank", "step", "operation", "role", "from", "net", "segment", "dp", "stage"]
    columns += ["group", "tokens", "bytes"]
    met = placed.filter(_MEETS).select(columns)
    together = pl.concat([filled.select(columns), met]).rename(
        {"from": "start", "net": "duration", "segment": "sequence"}
    )
    missing = [
        pl.lit(None, dtype).alias(name)
        for name, dtype in OPERATIONS.items()
        if name not in together.columns
    ]
    return together.with_columns(missing).select(list(OPERATIONS)).cast(OPERATIONS), notes


def serial_graph(operations: pl.DataFrame) -> Graph:
    """Graph of one step, from the result of :func:`serial_operations`.

    Raises
    ------
    TraceError
        If ranks enter the same communications in different orders.
    """
    one = operations.filter(pl.col("step") == operations["step"].min())
    usual = operations.group_by("rank", "operation", "sequence").agg(
        pl.col("start").mean().alias("_usual")
    )
    nodes = one.join(usual, on=["rank", "operation", "sequence"]).sort(
        "rank", "sequence", _MEETS, pl.col("operation") != HOST, "_usual"
    )
    rank, group = nodes["rank"].to_list(), nodes["group"].to_list()
    waits: list[list[int]] = [[] for _ in rank]
    for node, (before, after) in enumerate(pairwise(rank)):
        if before == after:
            waits[node + 1].append(node)
    members: dict[str, list[int]] = {}
    met = np.flatnonzero(nodes.select(_MEETS).to_series().to_numpy()).tolist()
    for node in met:
        members.setdefault(group[node], []).append(node)
    try:
        described = nodes.select(list(NODES))
        peers = described.select(pl.struct("operation", "sequence").rank("dense") - 1).to_series()
        groups = list(members.values())
        return assemble(described, waits, groups, met, peers=peers.to_numpy(), robust=True)
    except ValueError as error:
        raise TraceError(
            f"the ranks enter the same communications in different orders: {error}"
        ) from error


def _same_meetings(operations: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Keep the steps at which every rank has its usual communications."""
    notes = []
    sight = operations.group_by("rank", "step").agg(
        pl.concat_str("operation", pl.lit(" "), pl.col("group").fill_null(""))
        .filter(_MEETS)
        .str.join("\n")
        .alias("_met")
    )
    steps = sight["step"].n_unique()
    seldom = sight.group_by("rank").len().filter(pl.col("len") * 2 < steps)["rank"].sort()
    if len(seldom):
        notes.append(
            f"Rank {', '.join(map(str, seldom.head(5).to_list()))} has records of less than half "
            "of the steps and was left out."
        )
        sight = sight.filter(~pl.col("rank").is_in(seldom.to_list()))
        operations = operations.filter(~pl.col("rank").is_in(seldom.to_list()))
    usual = (
        sight.group_by("rank", "_met")
        .len()
        .sort("len", "_met", descending=True)
        .group_by("rank", maintain_order=True)
        .first()
        .select("rank", pl.col("_met").alias("_usual"))
    )
    ranks = usual.height
    whole = (
        sight.join(usual, on="rank")
        .group_by("step")
        .agg(pl.len().alias("ranks"), (pl.col("_met") == pl.col("_usual")).all().alias("same"))
        .with_columns(((pl.col("ranks") == ranks) & pl.col("same")).alias("good"))
    )
    bad = whole.filter(~pl.col("good"))["step"].sort()
    if len(bad) == len(whole):
        raise TraceError(
            f"no step has records of all {ranks} ranks with their usual communications; expected "
            "the same collectives at every step"
        )
    if len(bad):
        listed = ", ".join(map(str, bad.head(5).to_list())) + (", ..." if len(bad) > 5 else "")
        notes.append(
            f"{len(bad)} of {len(whole)} steps lack a rank or have other communications than the "
            f"rest and were left out: {listed}."
        )
    return operations.filter(~pl.col("step").is_in(bad.to_list())), notes


def _beyond_the_earlier(operations: pl.DataFrame, *, synchronised: bool) -> pl.DataFrame:
    """Add ``from``, ``net``, ``gap`` and ``segment``.

    ``net`` is how far an operation ends beyond all earlier ones of its rank, ``from`` where that
    stretch begins, ``gap`` the time without any operation before it, and ``segment`` the number of
    communications before it in the step.
    """
    place = ("rank", "step")
    end = pl.col("start") + pl.col("duration")
    joint = "step" if synchronised else list(place)
    steps = set(operations["step"].unique().to_list())
    follows = pl.Series([step - 1 in steps for step in operations["step"]])
    ordered = operations.with_columns(
        pl.col("start").min().over(joint).alias("_origin"), follows.alias("_follows")
    ).sort("rank", "step", "start", maintain_order=True)
    ends = ordered.group_by(place).agg(end.max().alias("_end"))
    before = ends.with_columns(pl.col("step") + 1).rename({"_end": "_before"})
    ordered = ordered.join(before, on=place, how="left", maintain_order="left")
    # Where the step before was recorded, a rank's step begins when that one ended on it.
    floor = pl.when("_follows").then(pl.coalesce("_before", "_origin")).otherwise("_origin")
    reached = end.cum_max().shift(1).over(place)
    return (
        ordered.with_columns(floor.alias("_floor"))
        .with_columns(pl.max_horizontal(reached, "_floor").alias("_reached"))
        .with_columns(
            pl.max_horizontal("start", "_reached").alias("from"),
            (pl.col("start") - pl.col("_reached")).clip(lower_bound=0.0).alias("gap"),
        )
        .with_columns(
            (end - pl.col("from")).clip(lower_bound=0.0).alias("net"),
            (_MEETS.cast(pl.Int32).cum_sum().over(place) - _MEETS.cast(pl.Int32)).alias("segment"),
        )
    )
