"""How a run ended, as far as its ledgers tell."""

from __future__ import annotations

import polars as pl

from reprolab.comparison import phrasing
from reprolab.comparison.metrics import facts
from reprolab.comparison.recordings import Context
from reprolab.errors import DamagedData
from reprolab.store import Run

FINISHED = "finished"
"""The reason that a training which came to its end gives."""


def ending(run: Run, side: str | None, context: Context) -> str | None:
    """Say how a run ended, unless all its ranks finished.

    Parameters
    ----------
    run : Run
        The run.
    side : str or None
        "a" or "b" where there are two runs.
    context : Context
        Where damage is reported.
    """
    try:
        last = run.attempts[-1] if run.attempts else None
    except DamagedData as error:
        context.report(error)
        return None
    if last is None:
        return None
    said = facts(run, "notes", run.ranks, context).filter(
        (pl.col("kind") == "end") & (pl.col("attempt") == last.index)
    )
    reasons = dict(said.select("rank", "text").rows())
    who = f"the run {side} ({run.name})" if side else f"the run {run.name}"
    early = {rank: text for rank, text in reasons.items() if text != FINISHED}
    open_ranks = sorted(set(range(last.world_size)).intersection(run.ranks) - set(reasons))
    if early:
        rank = min(early)
        return f"{who} ended early, on {phrasing.ranks(sorted(early))}: {early[rank]}"
    if open_ranks:
        return (
            f"{who} is unfinished on {phrasing.ranks(open_ranks)}: still being "
            "written, or ended without a word"
        )
    return None
