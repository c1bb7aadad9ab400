"""The runs of a lab as one table."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import polars as pl

from reprolab.errors import ReprolabError
from reprolab.store import Lab, Run
from reprolab.tables.consolidate import table
from reprolab.tables.schemas import RUNS
from reprolab.vocabulary import EVENT_STREAMS


def runs(lab: Lab) -> pl.DataFrame:
    """List the runs of a lab.

    Parameters
    ----------
    lab : Lab
        May be empty.

    Returns
    -------
    polars.DataFrame
        One row a run, with the columns of ``RUNS``. ``state`` is ``"finished"`` when all ranks of
        the last attempt closed their records, ``"unfinished"`` when some did not (still being
        written, or ended by a crash: the records of both look alike), ``"damaged"`` when something
        could not be read; then ``problem`` says what, and what could be read is there all the
        same. Losses are those of the lowest recorded rank; ``bytes`` is what the run takes on disk.
    """
    rows = []
    for name in lab.names():
        row: dict[str, Any] = dict.fromkeys(RUNS) | {"run": name}
        try:
            _describe(lab[name], row)
        except ReprolabError as error:
            row |= {"state": "damaged", "problem": str(error)}
        rows.append(row)
    return pl.DataFrame(rows, schema=RUNS, orient="row")


def _describe(run: Run, row: dict[str, Any]) -> None:
    """Fill `row` from cheap to costly, so that damage leaves what was read before it."""
    row["bytes"] = _size(run.path)
    row["attempts"] = len(run.attempts)
    row["world_size"] = run.attempts[-1].world_size if run.attempts else None
    row["ranks"] = len(run.ranks)
    row["checkpoints"] = len(run.checkpoints)
    row["steps"] = 0
    if run.ranks:
        reader = run.fingerprints(run.ranks[0])
        # The state after the last step stands under a step that never happened.
        happened = [stream for stream in reader.streams if stream in EVENT_STREAMS]
        steps = {
            step for stream in happened or reader.streams for step in reader.steps(stream).tolist()
        }
        row["steps"], row["last_step"] = len(steps), max(steps, default=None)
        metrics = table(run, "metrics", ranks=run.ranks[:1])
        # A step recorded by two attempts counts as the later one wrote it.
        losses = (
            metrics.filter(pl.col("name") == "loss")
            .sort("step", "attempt")
            .unique("step", keep="last", maintain_order=True)["value"]
        )
        if len(losses):
            row["first_loss"], row["last_loss"] = losses[0], losses[-1]
    row["state"] = "finished" if finished(run) else "unfinished"


def _size(folder: Path) -> int:
    """Bytes of all files below a folder; one that has several names counts once."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            # A run that is being written replaces files while this looks.
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(os.path.join(place, name))  # noqa: PTH116, PTH118
                found[state.st_dev, state.st_ino] = state.st_size
    return sum(found.values())


def finished(run: Run) -> bool:
    """Whether every rank of the last attempt closed its records."""
    if not run.attempts:
        return False
    last = run.attempts[-1]
    notes = table(run, "notes").filter(
        (pl.col("attempt") == last.index) & (pl.col("kind") == "end")
    )
    return set(range(last.world_size)) <= set(notes["rank"].to_list())
