"""Settings that differ: configuration, and environment of each rank."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import polars as pl

from reprolab.comparison import phrasing
from reprolab.store import Run
from reprolab.tables import flatten

Where = tuple[int, int]
"""Attempt and rank."""
Values = Mapping[Where, object]

INCIDENTAL = re.compile(
    r"(^|[._])("
    r"pids?|ppid|hosts?|hostname|node|nodename|fqdn|user|username|uid|uuid|serial|bus_id|"
    r"time|times|timestamp|date|started|created|finished|uptime|boot_time|"
    r"cwd|directory|folder|path|paths|prefix|executable|(argv|arguments)(\.\d+)?|command|"
    r"run|run_name|lab|output|output_dir|log_dir|"
    r"rank|local_rank|group_rank|node_rank|process_index|device_index|current_device|"
    r"port|addr|address|master_addr|master_port|run_id|restart_count|"
    r"free|available|load|memory_free|memory_available|affinity"
    r")$",
    re.IGNORECASE,
)
"""Keys whose values tell one process, place or moment from another and enter no computation."""

COLUMNS = {"key": pl.String(), "a": pl.String(), "b": pl.String()}


def configuration(a: Run, b: Run) -> pl.DataFrame:
    """Keys of the configuration that differ.

    Returns
    -------
    polars.DataFrame
        Columns key, a, b: values as JSON, null where a side lacks the key.
    """
    sides = [{key: {(0, 0): value} for key, value in flatten(run.config)} for run in (a, b)]
    return pl.DataFrame(_differing(*sides), schema=COLUMNS, orient="row")


def environment(a: Run, b: Run) -> pl.DataFrame:
    """Keys of the environment, mesh and code that differ.

    Returns
    -------
    polars.DataFrame
        Columns key, a, b as in :func:`configuration` (values that are not the same on all ranks
        name the ranks), and incidental: whether the key only tells one process, place or moment
        from another. Those come last.
    """
    return _with_incidental(_differing(_surroundings(a), _surroundings(b)))


def environment_of_ranks(run: Run, reference: int) -> pl.DataFrame:
    """Keys of the environment in which other ranks differ from the `reference` rank.

    Returns
    -------
    polars.DataFrame
        As :func:`environment`: a is the reference rank, b are the ranks that differ from it.
    """
    rows = []
    for key, values in _surroundings(run).items():
        attempts = {attempt for attempt, _ in values}
        expected = {attempt: values.get((attempt, reference), _ABSENT) for attempt in attempts}
        places = {(attempt, rank) for attempt in attempts for rank in run.ranks}
        others = {
            place: found
            for place in places
            if not _equal(found := values.get(place, _ABSENT), expected[place[0]])
        }
        if others:
            mine = {(attempt, reference): value for attempt, value in expected.items()}
            rows.append((key, _show(mine), _show(others, always=True)))
    return _with_incidental(rows)


def nothing() -> pl.DataFrame:
    """No key that differs."""
    return _with_incidental([])


class _Absent:
    pass


_ABSENT = _Absent()


def _surroundings(run: Run) -> dict[str, dict[Where, object]]:
    found: dict[str, dict[Where, object]] = {}
    for attempt in run.attempts:
        # What holds for all ranks stands under each of them, so that ranks compare alike.
        shared = {
            **({"code": attempt.code} if attempt.code else {}),
            "mesh": attempt.mesh,
            "world_size": attempt.world_size,
        }
        for rank, own in attempt.environments.items():
            for key, value in flatten({**own, **shared}):
                found.setdefault(key, {})[attempt.index, rank] = value
    return found


def _differing(
    a: Mapping[str, Values], b: Mapping[str, Values]
) -> list[tuple[str, str | None, str | None]]:
    rows = []
    for key in dict.fromkeys([*a, *b]):
        left, right = a.get(key, {}), b.get(key, {})
        common = left.keys() & right.keys()
        if (
            not common
            or any(not _equal(left[where], right[where]) for where in common)
            or {_json(value) for value in left.values()}
            != {_json(value) for value in right.values()}
        ):
            rows.append((key, _show(left), _show(right)))
    return rows


def _with_incidental(rows: list[tuple[str, str | None, str | None]]) -> pl.DataFrame:
    marked = [(*row, bool(INCIDENTAL.search(row[0]))) for row in rows]
    marked.sort(key=lambda row: row[3])
    return pl.DataFrame(marked, schema=COLUMNS | {"incidental": pl.Boolean()}, orient="row")


def _equal(a: object, b: object) -> bool:
    return _json(a) == _json(b)


def _json(value: object) -> str | None:
    return None if value is _ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _show(values: Values, *, always: bool = False) -> str | None:
    """One text for a key: the value, and where it holds unless that is everywhere."""
    groups: dict[str | None, list[Where]] = {}
    for where, value in sorted(values.items()):
        groups.setdefault(_json(value), []).append(where)
    if not groups:
        return None
    if len(groups) == 1 and not always:
        return next(iter(groups))
    many = len({attempt for attempt, _ in values}) > 1
    return "; ".join(f"{_places(places, many)}: {text}" for text, places in groups.items())


def _places(places: list[Where], many: bool) -> str:
    by_attempt: dict[int, list[int]] = {}
    for attempt, rank in places:
        by_attempt.setdefault(attempt, []).append(rank)
    if not many:
        return phrasing.ranks(next(iter(by_attempt.values())))
    return ", ".join(
        f"attempt {attempt} {phrasing.ranks(found)}" for attempt, found in by_attempt.items()
    )
