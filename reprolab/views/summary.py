"""What of a comparison stays the same while one looks around in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from reprolab.vocabulary import STREAMS

if TYPE_CHECKING:
    from reprolab.comparison import Comparison, FirstDifference

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


def summary(comparison: Comparison) -> dict[str, Any]:
    """Verdict, names, steps, streams, ranks and differing settings, ready for the page."""
    headline, *rest = _SENTENCE_END.split(comparison.verdict.strip(), maxsplit=1)
    first = comparison.first
    growth = comparison.growth
    steps = set(growth["step"]) | set(comparison.losses["step"])
    streams = [stream for stream in STREAMS if stream in set(growth["stream"])]
    differing = set(comparison.rows["stream"].unique())
    return {
        "same": comparison.same,
        "headline": headline,
        "rest": " ".join(rest),
        "names": names(comparison),
        "steps": sorted(int(step) for step in steps),
        "streams": streams,
        "differing": [stream for stream in streams if stream in differing],
        "ranks": sorted({int(rank) for rank in comparison.ranks}),
        "first": None if first is None else _place(first, streams),
        "configuration": settings(comparison.configuration),
        "environment": settings(comparison.environment),
        "notes": list(comparison.notes),
    }


def opening(shown: dict[str, Any]) -> tuple[int, str]:
    """Step and stream to begin with: those of the first difference, if there is one."""
    first = shown["first"] or {}
    streams = shown["differing"] or shown["streams"]
    usual = "params" if "params" in streams else streams[-1] if streams else ""
    return first.get("step", min(shown["steps"], default=0)), first.get("stream", usual)


def names(comparison: Comparison) -> list[str]:
    """What to call the two sides: ranks where those of one run were compared, else the runs."""
    if comparison.reference is not None:
        return [f"rank {comparison.reference}", "the other ranks"]
    called = [comparison.a.name, comparison.b.name]
    if called[0] == called[1]:
        return [f"{side}: {name}" for side, name in zip("ab", called, strict=True)]
    return called


def _place(first: FirstDifference, streams: list[str]) -> dict[str, Any]:
    """As far as there is such a place in the map: a loss may be known from the ledgers alone."""
    if first.stream not in streams:
        return {"step": first.step}
    place = {"step": first.step, "stream": first.stream}
    return place if first.tensor is None else place | {"tensor": first.tensor}


def settings(frame: pl.DataFrame) -> list[list[str]]:
    """Rows of key, a, b; a value that a side lacks is a dash."""
    return [
        ["–" if value is None else str(value) for value in row]
        for row in frame.select("key", "a", "b").iter_rows()
    ]
