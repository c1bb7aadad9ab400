"""What the trainings reported about themselves: losses, other metrics, samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import polars as pl

from reprolab.comparison.recordings import Context
from reprolab.errors import DamagedData
from reprolab.store import Run
from reprolab.tables import SCHEMAS, table

LOSSES = pl.Schema(
    {"step": pl.Int64(), "side": pl.String(), "rank": pl.Int32(), "loss": pl.Float64()}
)
DIFFERENCES = pl.Schema(
    {
        "step": pl.Int64(),
        "rank": pl.Int32(),
        "name": pl.String(),
        "a": pl.Float64(),
        "b": pl.Float64(),
    }
)


def facts(run: Run, name: str, ranks: Iterable[int], context: Context) -> pl.DataFrame:
    """A table of some ranks; a rank whose ledger is damaged is left out and reported.

    Where several attempts recorded a step, the newest counts.
    """
    frames = [pl.DataFrame(schema=SCHEMAS[name])]
    for rank in ranks:
        try:
            frames.append(table(run, name, ranks=[rank]))
        except DamagedData as error:
            context.report(error)
    found = pl.concat(frames)
    newest = pl.col("attempt") == pl.col("attempt").max().over("rank", "step")
    return found.filter(newest)


def losses(sides: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Loss of each side, step and rank, from its metrics; several losses of a step are averaged.

    Parameters
    ----------
    sides : mapping of str to polars.DataFrame
        The metrics of side "a", and of "b" if there is one.
    """
    parts = [
        metrics.filter((pl.col("name") == "loss") | pl.col("name").str.starts_with("loss/"))
        .group_by("step", "rank")
        .agg(loss=pl.col("value").mean())
        .select("step", pl.lit(side).alias("side"), "rank", "loss")
        for side, metrics in sides.items()
    ]
    return pl.concat([pl.DataFrame(schema=LOSSES), *parts]).sort("side", "rank", "step")


def differences(a: pl.DataFrame, b: pl.DataFrame, steps: Iterable[int] | None) -> pl.DataFrame:
    """Metrics that both sides recorded with different values, by step, rank and name."""
    key = ["step", "rank", "name"]
    both = a.select(*key, a="value").join(b.select(*key, b="value"), on=key)
    if steps is not None:
        both = both.filter(pl.col("step").is_in(list(steps)))
    # Polars takes NaN to equal NaN, which is what is wanted here.
    return both.filter(pl.col("a") != pl.col("b")).unique().sort(key).select(*DIFFERENCES)


def samples(a: pl.DataFrame, b: pl.DataFrame, step: int) -> str | None:
    """What the identities of the samples say about two different batches of one step.

    Parameters
    ----------
    a, b : polars.DataFrame
        The table of batches of all ranks of each side.

    Returns
    -------
    str or None
        A clause; None where the samples have no identities.
    """
    held = []
    for side in (a, b):
        rows = side.filter(pl.col("step") == step).sort("rank", "index")
        ids = [
            (rank, index, sample)
            for rank, index, text in rows.select("rank", "index", "ids").iter_rows()
            for sample in (json.loads(text) if text else [])
        ]
        if not ids:
            return None
        held.append(ids)
    ours, theirs = ([sample for _, _, sample in side] for side in held)
    if held[0] == held[1]:
        return f"they hold the same {len(ours)} samples in the same order, with other content"
    if sorted(ours) == sorted(theirs):
        ranks = [sorted((rank, sample) for rank, _, sample in side) for side in held]
        if ranks[0] == ranks[1]:
            return f"each rank got the same samples ({len(ours)} in all) in another order"
        return f"they hold the same {len(ours)} samples, dealt to the ranks in another way"
    shared = len(set(ours) & set(theirs))
    return f"they share {shared} of {max(len(set(ours)), len(set(theirs)))} samples"
