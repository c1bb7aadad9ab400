"""Ledgers into tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from reprolab.errors import DamagedData
from reprolab.store import Run
from reprolab.store.durable import replace_file
from reprolab.tables.flatten import flatten
from reprolab.tables.schemas import SCHEMAS

Fact = Mapping[str, Any]
Row = dict[str, Any]


def tables(run: Run) -> dict[str, pl.DataFrame]:
    """All tables of a run, read from its ledgers as they are now.

    Parameters
    ----------
    run : Run
        Finished, crashed or still being written.

    Returns
    -------
    dict of str to polars.DataFrame
        One frame a name in ``SCHEMAS``, with exactly that schema; empty where nothing was recorded.

    Raises
    ------
    DamagedData
        If a line in the middle of a ledger is not what was written, or a fact has a field of
        another type than its table. A torn last line is no damage.
    """
    frames = _from_facts(run, set(_ROWS))
    return {name: frames[name] if name in frames else _REST[name](run) for name in SCHEMAS}


def table(run: Run, name: str, *, ranks: Iterable[int] | None = None) -> pl.DataFrame:
    """One table of a run.

    Parameters
    ----------
    run : Run
        Finished, crashed or still being written.
    name : str
        A key of ``SCHEMAS``.
    ranks : iterable of int, optional
        Read the ledgers of these ranks only. ``environment`` and ``layout`` do not come from
        ledgers and always cover all ranks.

    Raises
    ------
    ValueError
        If there is no such table.
    DamagedData
        As for :func:`tables`.
    """
    if name not in SCHEMAS:
        raise ValueError(f"name must be one of {', '.join(SCHEMAS)}; got {name!r}")
    if name in _REST:
        return _REST[name](run)
    return _from_facts(run, {name}, ranks)[name]


def write_tables(run: Run) -> list[Path]:
    """Write all tables of a run as Parquet files into its folder, replacing earlier ones.

    Returns
    -------
    list of pathlib.Path
        The files, in the order of ``SCHEMAS``.
    """
    paths = []
    for name, frame in tables(run).items():
        path = run.table_file(name)
        path.parent.mkdir(exist_ok=True)
        data = BytesIO()
        frame.write_parquet(data)
        replace_file(path, data.getvalue())
        paths.append(path)
    return paths


def _from_facts(
    run: Run, wanted: Collection[str], ranks: Iterable[int] | None = None
) -> dict[str, pl.DataFrame]:
    makers: dict[str, list[tuple[str, Callable[[Fact], Iterator[Row]]]]] = defaultdict(list)
    for name in wanted:
        for kind, make in _ROWS[name].items():
            makers[kind].append((name, make))
    rows: dict[str, list[Row]] = {name: [] for name in wanted}
    for rank in run.ranks if ranks is None else ranks:
        for fact in run.facts(rank):
            for name, make in makers.get(fact["kind"], ()):
                place = {key: fact.get(key) for key in ("attempt", "rank", "step")}
                rows[name] += (place | row for row in make(fact))
    return {name: _frame(run, name, found) for name, found in rows.items()}


def _frame(run: Run, name: str, rows: list[Row]) -> pl.DataFrame:
    schema = SCHEMAS[name]
    try:
        columns = {key: [row.get(key) for row in rows] for key in schema}
        return pl.DataFrame(columns, schema=schema, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DamagedData(
            f"a fact does not fit the table {name!r} with columns {dict(schema)}: {error}",
            run=run.name,
        ) from error


def _span(fact: Fact) -> Iterator[Row]:
    yield {
        "name": fact.get("name"),
        "start": _number(fact.get("start")),
        "duration": _number(fact.get("duration")),
    }


def _metric(fact: Fact) -> Iterator[Row]:
    yield {"name": fact.get("name"), "value": _number(fact.get("value"))}


def _batch(fact: Fact) -> Iterator[Row]:
    yield {
        "index": fact.get("index"),
        "ids": _json(fact.get("ids")),
        "sizes": _json(fact.get("sizes")),
    }


_PLACE = frozenset({"kind", "attempt", "rank", "step", "crc"})


def _resource(fact: Fact) -> Iterator[Row]:
    for name, value in flatten({key: fact[key] for key in fact if key not in _PLACE}):
        if isinstance(value, int | float):
            yield {"name": name, "value": float(value)}


def _said(fact: Fact) -> Iterator[Row]:
    yield {"kind": fact["kind"], "text": fact.get("text", fact.get("reason"))}


_ROWS: dict[str, dict[str, Callable[[Fact], Iterator[Row]]]] = {
    "spans": {"span": _span},
    "metrics": {"metric": _metric},
    "batches": {"batch": _batch},
    "resources": {"resource": _resource},
    "notes": {"note": _said, "end": _said},
}
"""For each table made of facts: which kinds of facts become which rows."""


def _environment(run: Run) -> pl.DataFrame:
    rows = [
        {"attempt": attempt.index, "rank": rank, "key": key, "value": _json(value)}
        for attempt in run.attempts
        for rank, environment in sorted(attempt.environments.items())
        for key, value in flatten({**environment, "code": attempt.code})
    ]
    return _frame(run, "environment", rows)


def _layout(run: Run) -> pl.DataFrame:
    rows = []
    for rank in run.ranks:
        reader = run.fingerprints(rank)
        for stream in reader.streams:
            known = None
            for step in reader.steps(stream).tolist():
                layout = reader.layout(stream, step)
                if layout is known or layout == known:
                    continue
                known = layout
                rows += [
                    {
                        "rank": rank,
                        "stream": stream,
                        "step": step,
                        "position": position,
                        "tensor": tensor.name,
                        "dtype": tensor.dtype,
                        "shape": list(tensor.shape),
                        "bytes": tensor.nbytes,
                        "blocks": tensor.blocks(layout.block_bytes),
                        "block_bytes": layout.block_bytes,
                    }
                    for position, tensor in enumerate(layout.tensors)
                ]
    return _frame(run, "layout", rows)


_REST: dict[str, Callable[[Run], pl.DataFrame]] = {"environment": _environment, "layout": _layout}
"""Tables that do not come from the ledgers."""


def _number(value: Any) -> float | None:
    """Integers and floats are one column; anything else is left for the schema to refuse."""
    return float(value) if isinstance(value, int | float) else value


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
