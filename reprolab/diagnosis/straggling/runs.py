"""What else a run recorded at the time of each episode: its batches and its resources."""

from __future__ import annotations

import polars as pl

from reprolab.store import Run
from reprolab.tables.consolidate import table
from reprolab.tables.schemas import SCHEMAS


def at_the_time(run: Run, episodes: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Facts of the rank-steps that belong to an episode.

    Parameters
    ----------
    run : Run
    episodes : polars.DataFrame
        With the columns of ``EPISODES``; of episodes at single steps all steps between the first
        and the last count.

    Returns
    -------
    dict of str to polars.DataFrame
        ``batches`` with the ids and sizes of the samples, ``resources`` with what the process used,
        each with the columns of its table.
    """
    if episodes.is_empty():
        return {name: pl.DataFrame(schema=SCHEMAS[name]) for name in ("batches", "resources")}
    ranks = episodes["rank"].unique().to_list()
    when = [
        (pl.col("rank") == row["rank"])
        & pl.col("step").is_between(row["first_step"], row["last_step"])
        for row in episodes.iter_rows(named=True)
    ]
    return {
        name: table(run, name, ranks=ranks).filter(pl.any_horizontal(when))
        for name in ("batches", "resources")
    }
