"""Puts the page side together: our own modules into one, the style sheet, the chart library.

The sources in ``page/`` are ordinary ES modules. A widget and a report each need one module
without a server to import from, so the modules an entry needs are joined in dependency order.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'^import\s+\{([^}]*)\}\s+from\s+"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async function|function|const|class)", re.MULTILINE)


@cache
def module(entry: str) -> str:
    """Return one ES module: the file `entry` and all it imports.

    Parameters
    ----------
    entry : str
        A file of ``page/``, for example ``"widget.js"``.

    Raises
    ------
    ValueError
        If two of the joined modules give the same name to different things.
    """
    joined: dict[str, str] = {}
    _join(entry, joined)
    text = "".join(joined.values())
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{entry}: these names are given twice: {', '.join(twice)}")
    return text


def _join(name: str, joined: dict[str, str]) -> None:
    if name in joined:
        return
    text = _source(name)
    for _, needed in _IMPORT.findall(text):
        _join(needed, joined)
    joined[name] = _EXPORT.sub("", _IMPORT.sub("", text))


@cache
def style() -> str:
    """Return the style sheet of all views."""
    return _source("view.css")


@cache
def vega() -> str:
    """Return the chart library as one ES module that needs no network (about 0.9 MB)."""
    from vl_convert import javascript_bundle

    return javascript_bundle('globalThis[Symbol.for("reprolab.vega")] = vegaEmbed;')


def _source(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
