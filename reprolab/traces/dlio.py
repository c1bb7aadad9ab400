"""Outputs of the DLIO benchmark, which MLPerf Storage is built on: a JSON file a rank.

A file holds, by epoch and block, how long each step waited for its batch (``load``), computed
(``compute``; missing in old files) and took in all (``proc``). No moments are recorded. The
benchmark lets all ranks meet at a barrier after each step, so starts are laid out one step after
the other, and the wait at the barrier is what the slowest rank took longer.
"""

from __future__ import annotations

import re
from itertools import zip_longest

import numpy as np
import polars as pl

from reprolab.errors import TraceError
from reprolab.tables.operations import BARRIER, OPERATIONS, WORK, conform
from reprolab.traces.documents import load_json
from reprolab.traces.sources import Source
from reprolab.traces.trace import Trace

NAME = re.compile(r"(\d+)_(output|load_and_proc_times)\.json$")
"""File names of the benchmark, with the rank."""

Steps = list[tuple[str, float, float, float]]
"""Block of a step, and its seconds: load, compute, all."""


def open_dlio(files: list[Source]) -> Trace:
    """Read the outputs of all ranks.

    Raises
    ------
    TraceError
        If a file is not such an output, or no step was recorded on all ranks.
    """
    notes: list[str] = []
    ranks: dict[int, Steps] = {}
    for source in files:
        found = NAME.search(source.stem)
        rank = int(found.group(1)) if found else source.rank()
        if rank is None or rank in ranks:
            raise TraceError("expected one file a rank, named like 3_output.json", path=source.name)
        ranks[rank] = _steps(load_json(source), source)
    counts = {rank: len(steps) for rank, steps in ranks.items()}
    shared = min(counts.values())
    if not shared:
        raise TraceError(
            f"rank {min(counts, key=lambda rank: counts[rank])} recorded no steps",
            path=files[0].name,
        )
    if shared < max(counts.values()):
        notes.append(
            f"The ranks recorded between {shared} and {max(counts.values())} steps; the first "
            f"{shared} were used."
        )
    notes.append("DLIO records no moments: starts and waits follow from its barrier a step.")
    return Trace(
        _operations(ranks, shared),
        "dlio",
        files[0].name,
        len(ranks),
        laid_out=True,
        notes=tuple(notes),
    )


def _steps(document: object, source: Source) -> Steps:
    if not isinstance(document, dict):
        raise TraceError("expected a JSON object by epoch", path=source.name)
    epochs = sorted((int(key), value) for key, value in document.items() if str(key).isdigit())
    found: Steps = []
    for epoch, record in epochs:
        if not isinstance(record, dict):
            continue
        loads, totals = record.get("load", {}), record.get("proc", {})
        computes = record.get("compute", {})
        if not isinstance(loads, dict) or not isinstance(totals, dict):
            raise TraceError(f"epoch {epoch} has no load and proc times by block", path=source.name)
        for block in sorted(loads, key=_natural):
            if block == "eval":
                continue
            computed = computes.get(block, []) if isinstance(computes, dict) else []
            # The last batch may have been loaded and not processed any more.
            for load, total, compute in zip_longest(loads[block], totals.get(block, []), computed):
                if load is None or total is None:
                    break
                spent = total - load if compute is None else compute
                found.append((f"epoch {epoch} {block}", float(load), float(spent), float(total)))
    return found


def _natural(name: str) -> tuple[str, int]:
    number = re.search(r"\d+$", name)
    return (name[: number.start()], int(number.group())) if number else (name, 0)


def _operations(ranks: dict[int, Steps], steps: int) -> pl.DataFrame:
    order = sorted(ranks)
    times = np.array([[step[1:] for step in ranks[rank][:steps]] for rank in order])
    load, compute, total = np.moveaxis(times, 2, 0)
    total = np.maximum(total, load + compute)
    longest = total.max(axis=0)
    begin = np.concatenate([[0.0], np.cumsum(longest)[:-1]])
    rank = np.repeat(order, steps)
    step = np.tile(np.arange(steps), len(order))
    rows = {
        "data": (begin + 0 * load, load),
        "compute": (begin + total - compute, compute),
        "barrier": (begin + total, longest - total),
    }
    frames = [
        pl.DataFrame(
            {
                "rank": rank,
                "step": step,
                "operation": name,
                "role": BARRIER if name == "barrier" else WORK,
                "start": start.ravel(),
                "duration": duration.ravel(),
                "group": "barrier" if name == "barrier" else None,
            },
            schema_overrides={"group": pl.String()},
        )
        for name, (start, duration) in rows.items()
    ]
    return conform(pl.concat(frames))[0].select(list(OPERATIONS))
