"""From anything that holds operations to the finished analysis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from reprolab.diagnosis.straggling.attribution import attribute
from reprolab.diagnosis.straggling.causes import find
from reprolab.diagnosis.straggling.episodes import episodes
from reprolab.diagnosis.straggling.excess import excess
from reprolab.diagnosis.straggling.interval import slowdown_interval
from reprolab.diagnosis.straggling.lateness import by_rank, heat, lateness
from reprolab.diagnosis.straggling.layout import Layout, lay_out
from reprolab.diagnosis.straggling.phases import conform_phases, is_phases, lay_out_phases
from reprolab.diagnosis.straggling.result import Stragglers
from reprolab.diagnosis.straggling.runs import at_the_time
from reprolab.diagnosis.straggling.shares import shares
from reprolab.diagnosis.straggling.verdict import headline, sentences
from reprolab.diagnosis.straggling.workload import workload
from reprolab.errors import RunNotFound, TraceError
from reprolab.store import Run, open_run
from reprolab.tables.operations import OPERATIONS, conform
from reprolab.traces import Trace, is_table, open_trace, read_table, recorded


def stragglers(source: str | Path | Run | Trace | pl.DataFrame) -> Stragglers:
    """Say who was late in a training, what it cost, and what to do.

    Parameters
    ----------
    source : path, Run, Trace or polars.DataFrame
        A run, a trace that :func:`reprolab.traces.open_trace` reads, or a table of operations or
        phases (`reprolab.tables.operations`).

    Returns
    -------
    Stragglers

    Raises
    ------
    TraceError
        If there is nothing that can be analysed.
    """
    if isinstance(source, pl.DataFrame):
        return _of_table(source, "table")
    if isinstance(source, Trace):
        return analyse(source)
    if isinstance(source, Run):
        return _of_run(source)
    path = Path(source)
    if path.is_file():
        # Phases are no operations, so they cannot be opened as a trace.
        if is_table(path) and is_phases(frame := read_table(path)):
            return _of_table(frame, str(path))
        return analyse(open_trace(path))
    try:
        run = open_run(path)
    except RunNotFound as missing:
        try:
            return analyse(open_trace(path))
        except TraceError as error:
            raise TraceError(
                f"{error.message}; as a run: {missing.message}", **error.where
            ) from None
    return _of_run(run)


def _of_table(frame: pl.DataFrame, source: str) -> Stragglers:
    if is_phases(frame):
        nothing = pl.DataFrame(schema=OPERATIONS)
        trace = Trace(nothing, "phases", source, laid_out=True)
        return _analyse(lay_out_phases(conform_phases(frame)), trace)
    operations, left_out = conform(frame, source=source)
    return analyse(Trace(operations, "table", source, notes=tuple(left_out)))


def _of_run(run: Run) -> Stragglers:
    try:
        found = analyse(recorded(run))
    except TraceError as error:
        raise error.at(run=run.name) from None
    return replace(found, rows=found.rows | at_the_time(run, found.rows["episodes"]))


def analyse(trace: Trace) -> Stragglers:
    """Analyse a trace."""
    return _analyse(lay_out(trace.operations), trace)


def _analyse(laid: Layout, trace: Trace) -> Stragglers:
    model = laid.model
    work = workload(model)
    over = excess(model, work)
    found, marks = episodes(over, model.actual)
    late = lateness(model, comparable=laid.comparable)
    ranked = by_rank(late)
    parts = shares(model, work)
    finding = find(model, parts, found, marks, over, ranked)
    split = attribute(model)
    slowdown = slowdown_interval(model)
    said = sentences(model, finding, found, ranked, parts, work, split, slowdown)
    total = float(model.actual.mean()) - model.ideal
    clocks = () if trace.laid_out else (laid.clocks.sentence,)
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
        notes=(*clocks, *trace.notes, *laid.notes),
        finding=finding,
        model=model,
        world_size=trace.world_size or len(over.ranks),
    )
