"""From anything that holds operations to the finished analysis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.attribution import attribute
from reprolab.diagnosis.straggling.causes import find
from reprolab.diagnosis.straggling.episodes import episodes
from reprolab.diagnosis.straggling.excess import excess
from reprolab.diagnosis.straggling.interval import slowdown_interval
from reprolab.diagnosis.straggling.lateness import by_rank, heat, lateness
from reprolab.diagnosis.straggling.layout import Layout, lay_out
from reprolab.diagnosis.straggling.result import Stragglers
from reprolab.diagnosis.straggling.shares import shares
from reprolab.diagnosis.straggling.verdict import headline, sentences
from reprolab.diagnosis.straggling.workload import workload
from reprolab.tables.operations import conform
from reprolab.traces import Trace, open_trace


def stragglers(source: str | Path | Trace | pl.DataFrame) -> Stragglers:
    """Say who was late in a training, what it cost, and what to do.

    Parameters
    ----------
    source : path, Trace or polars.DataFrame
        A trace that :func:`reprolab.traces.open_trace` reads, or a table of operations.

    Returns
    -------
    Stragglers

    Raises
    ------
    TraceError
        If there is nothing that can be analysed.
    """
    if isinstance(source, pl.DataFrame):
        operations, left_out = conform(source)
        trace = Trace(operations, "table", "operations", None, tuple(left_out))
    else:
        trace = source if isinstance(source, Trace) else open_trace(source)
    laid = lay_out(trace.operations)
    return analyse(laid, trace)


def analyse(laid: Layout, trace: Trace) -> Stragglers:
    """Analyse a trace that was laid out already."""
    model = laid.model
    comparable = bool(laid.clocks.aligned.all()) and not np.isnan(laid.clocks.error)
    work = workload(model)
    over = excess(model, work)
    found, marks = episodes(over, model.actual)
    late = lateness(model, comparable=comparable)
    ranked = by_rank(late)
    parts = shares(model, work)
    finding = find(model, parts, found, marks, over, ranked)
    split = attribute(model)
    slowdown = slowdown_interval(model)
    said = sentences(model, finding, found, ranked, parts, work, split, slowdown)
    total = float(model.actual.mean()) - model.ideal
    rows = {
        "episodes": found,
        "culprits": finding.culprits,
        "shares": pl.DataFrame(
            {
                "difference": list(parts),
                "seconds": list(parts.values()),
                "share": [value / total if total > 0 else 0.0 for value in parts.values()],
            }
        ),
        "lateness": late,
        "ranks": ranked,
        "heat": heat(late),
        "steps": pl.DataFrame(
            {
                "step": model.timing.steps,
                "measured": model.timing.span,
                "replayed": model.actual,
                "slowdown": model.actual / model.ideal,
            }
        ),
    }
    return Stragglers(
        headline=headline(finding),
        verdict=" ".join(said),
        cause=finding.cause,
        late=tuple(finding.culprits["rank"].to_list()),
        slowdown=slowdown,
        attribution=split,
        rows=rows,
        notes=(laid.clocks.sentence, *trace.notes, *laid.notes),
        finding=finding,
        model=model,
        world_size=trace.world_size or len(trace.ranks),
    )
