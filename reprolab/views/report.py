"""A comparison as one HTML page that needs nothing but a browser."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprolab.views import frontend
from reprolab.views.cell import cell, number
from reprolab.views.charts import charts
from reprolab.views.heat import extent, heat
from reprolab.views.summary import opening, settings, summary
from reprolab.views.text import markup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reprolab.comparison import Comparison

LISTED = 200
"""Rows of tensors that differ listed in the page."""

LOOKED_AT = 60
"""Cells whose block maps are kept in the page, those of the first difference first."""

MAP_BYTES = 4 << 20
"""Maps of single ranks are kept in the page up to this many bytes."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';\
 style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}
:root {{ color-scheme: light dark; }}
body {{ max-width: 1200px; margin: 0 auto; padding: 16px; background: #fff; color: #1f2328;
  font: 14px/1.45 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }}
h1 {{ margin: 0 0 8px; font-size: 20px; overflow-wrap: anywhere; }}
h2 {{ margin: 24px 0 4px; font-size: 16px; }}
.rl-page {{ container-type: normal; font-size: 14px; }}
.rl-page .rl-wide {{ max-height: 480px; overflow: auto; }}
.rl-page .rl-table th, .rl-page .rl-table td {{ white-space: nowrap; }}
.rl-page .rl-table td.rl-long {{ min-width: 12em; max-width: 32em; white-space: normal; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #111417; color: #e6e9ec; }}
  .rl-view {{ --rl-fg: #e6e9ec; --rl-muted: #a0a9b2; --rl-line: #343b43; --rl-soft: #22272d;
    --rl-page: #181c20; }}
}}
</style>
</head>
<body>
<h1>{title}</h1>
<div id="reprolab-view"><p>{verdict}</p></div>
<div class="rl-view rl-page">
{sections}
</div>
<script type="application/json" id="reprolab-data">{data}</script>
<script type="module">{vega}</script>
<script type="module">{module}</script>
</body>
</html>
"""


def report(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison as one self-contained page.

    The page opens from a file, without a network, and loads nothing. Cursor, charts and heat map
    work as in a notebook; the block maps of the cells around the first difference are kept in it.

    Parameters
    ----------
    comparison : Comparison
        What to show.
    path : path
        The file to write; it is replaced if it exists.

    Returns
    -------
    pathlib.Path
        The file.
    """
    shown = summary(comparison)
    title = f"{' and '.join(shown['names'])}: {'the same' if shown['same'] else 'different'}"
    page = _PAGE.format(
        title=markup(title),
        style=frontend.style(),
        verdict=markup(comparison.verdict),
        sections="\n".join(_sections(comparison, shown)),
        data=_json(_stored(comparison, shown)),
        vega=_script(frontend.vega()),
        module=_script(frontend.module("report.js")),
    )
    target = Path(path)
    target.write_text(page, encoding="utf-8")
    return target


def _stored(comparison: Comparison, shown: dict[str, Any]) -> dict[str, Any]:
    """What a kernel would have answered: all maps, and the cells most worth a look."""
    limits = extent(comparison.rows)
    heats = [heat(comparison, stream, None, limits) for stream in shown["streams"]]
    if sum(len(found["frame"]) for found in heats) * len(shown["ranks"]) <= MAP_BYTES:
        heats += [
            heat(comparison, stream, rank, limits)
            for stream in shown["streams"]
            for rank in shown["ranks"]
        ]
    else:
        shown = shown | {"ranks": []}
    step, stream = opening(shown)
    focus = {found["stream"]: found["focus"] for found in heats if found["rank"] is None}
    first = shown["first"] or {}
    wanted = (
        comparison.rows.sort("step", maintain_order=True)
        .select("step", "stream", "tensor")
        .unique(maintain_order=True)
        .head(LOOKED_AT)
    )
    for found in heats:
        found["frame"] = base64.b64encode(found["frame"]).decode()
    return {
        "state": {
            "_summary": shown | {"bare": True},
            "_charts": charts(comparison, shown["names"]),
            "_error": "",
            "step": step,
            "stream": stream,
            "rank": None,
            "tensor": first.get("tensor") or focus.get(stream, ""),
        },
        "heats": heats,
        "cells": [
            cell(comparison, at, of, tensor, rank, limits)
            for number, (at, of, tensor) in enumerate(wanted.iter_rows())
            for rank in ([None, *shown["ranks"]] if number == 0 else [None])
        ],
    }


def _sections(comparison: Comparison, shown: dict[str, Any]) -> Iterable[str]:
    columns = ["key", *shown["names"]]
    for heading, frame in (
        ("Configuration", comparison.configuration),
        ("Environment", comparison.environment),
    ):
        yield _section(heading, columns, settings(frame), "Nothing differs.")
    listed = [
        [
            str(row["step"]),
            str(row["stream"]),
            str(row["rank"]),
            row["tensor"],
            str(row["kind"]),
            number(row["relative"]),
            number(row["distance"]),
            _blocks(row),
        ]
        for row in comparison.rows.head(LISTED).iter_rows(named=True)
    ]
    of = f" (the first {LISTED} of {len(comparison.rows)})" if len(comparison.rows) > LISTED else ""
    names = ["step", "stream", "rank", "tensor", "how", "relative", "distance", "blocks"]
    yield _section(f"Tensors that differ{of}", names, listed, "None.")
    notes = "".join(f"<li>{markup(note)}</li>" for note in shown["notes"])
    yield f"<h2>Notes</h2>\n<ul>{notes}</ul>" if notes else ""


def _blocks(row: dict[str, Any]) -> str:
    if row["blocks"] is None:
        return "–"
    return f"{'some' if row['differing'] is None else row['differing']} of {row['blocks']}"


def _section(heading: str, columns: Sequence[str], rows: list[list[str]], nothing: str) -> str:
    if not rows:
        return f"<h2>{markup(heading)}</h2>\n<p>{markup(nothing)}</p>"
    head = "".join(f'<th scope="col">{markup(column)}</th>' for column in columns)
    body = "\n".join(f"<tr>{''.join(map(_value, row))}</tr>" for row in rows)
    return (
        f'<h2>{markup(heading)}</h2>\n<div class="rl-wide"><table class="rl-table">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _value(text: str) -> str:
    long = ' class="rl-long"' if len(text) > 24 else ""
    return f"<td{long}>{markup(text)}</td>"


def _json(value: Any) -> str:
    """JSON that can stand in a script element: no "<" can end it or begin markup."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _script(text: str) -> str:
    """Refuse a script that would end its own element."""
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("this script cannot stand in a page")
    return text
