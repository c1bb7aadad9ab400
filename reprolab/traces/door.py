"""Tell what a file is, and read it."""

from __future__ import annotations

import re
from pathlib import Path

from reprolab.errors import TraceError
from reprolab.traces.dlio import NAME, open_dlio
from reprolab.traces.flight import open_flight
from reprolab.traces.kineto import open_kineto
from reprolab.traces.sources import Source, sources
from reprolab.traces.tabular import is_table, open_table
from reprolab.traces.trace import Trace

KNOWN = (
    "PyTorch profiler traces (JSON, .gz or .tar of them), tables of operations (.parquet, .csv), "
    "DLIO output folders, PyTorch Flight Recorder dumps"
)


def open_trace(path: str | Path) -> Trace:
    """Read a trace, whatever kind it is.

    Parameters
    ----------
    path : path
        A file, a folder or an archive of one file a rank. What it is shows in its bytes, not in its
        name.

    Raises
    ------
    TraceError
        If nothing here is a trace, or it is damaged.
    """
    path = Path(path)
    if is_table(path) and path.is_file():
        return open_table(path)
    with sources(path) as files:
        kinds: dict[str, list[Source]] = {}
        for source in files:
            kinds.setdefault(_kind(source), []).append(source)
        for kind, read in _READERS.items():
            if kind in kinds:
                return read(kinds[kind])
    raise TraceError(f"there is no trace here; known are {KNOWN}", path=path)


_READERS = {"kineto": open_kineto, "flight recorder": open_flight, "dlio": open_dlio}
_EVENTS = re.compile(rb'"traceEvents"\s*:')


def _kind(source: Source) -> str:
    head = source.head()
    start = head.lstrip()[:1]
    if start == b"{" and (_EVENTS.search(head) or b'"schemaVersion"' in head):
        return "kineto"
    if start == b"[" and b'"ph"' in head:
        return "kineto"
    if start == b"\x80" or (start == b"{" and b'"profiling_name"' in head):
        return "flight recorder"
    if NAME.search(source.stem) or (b'"load"' in head and b'"proc"' in head):
        return "dlio"
    return "unknown"
