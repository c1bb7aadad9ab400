"""Tables of operations in Parquet or CSV: the documented columns, or those of a published trace.

The documented columns are :data:`reprolab.tables.operations.OPERATIONS`. The traces published with
"Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25) name theirs
differently and bring the mesh in a file ``meta-*.yaml`` beside ``trace-*.parquet``.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reprolab.errors import TraceError
from reprolab.tables.operations import conform
from reprolab.traces.trace import Trace

PUBLISHED = {
    "optype": "operation",
    "start_ts": "start",
    "seq_id": "sequence",
    "dp_rank": "dp",
    "mc": "part",
    "mb_id": "microbatch",
}
"""Columns of the published traces, and what they are called here."""


def is_table(path: Path) -> bool:
    """Whether a file's name says that it is a table."""
    return path.suffix in (".parquet", ".csv")


def read_table(path: Path) -> pl.DataFrame:
    """Read a ``.parquet`` or ``.csv`` file, with the published columns under the names used here.

    Raises
    ------
    TraceError
        If the file is not such a table.
    """
    try:
        frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise TraceError(
            f"this is not a {path.suffix.removeprefix('.')} table, or it is cut short: {error}",
            path=path,
        ) from error
    return frame.rename({old: new for old, new in PUBLISHED.items() if old in frame.columns})


def open_table(path: Path) -> Trace:
    """Read a table of operations.

    Parameters
    ----------
    path : pathlib.Path
        A ``.parquet`` or ``.csv`` file.

    Raises
    ------
    TraceError
        If the file is not a table, or required columns are missing.
    """
    operations, notes = conform(read_table(path), source=str(path))
    return Trace(operations, "table", str(path), _world_size(path), notes=tuple(notes))


def _world_size(path: Path) -> int | None:
    beside = path.with_name(path.stem.replace("trace-", "meta-", 1) + ".yaml")
    if not path.stem.startswith("trace-") or not beside.is_file():
        return None
    for line in beside.read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "world_size" and value.strip().isdigit():
            return int(value)
    return None
