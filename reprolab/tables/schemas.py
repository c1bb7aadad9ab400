"""Every Polars schema of the package, one a table.

All tables of facts start with ``attempt``, ``rank`` and ``step``; a fact that belongs to no step
has a null there.
"""

from __future__ import annotations

import polars as pl

_PLACE = {"attempt": pl.Int32(), "rank": pl.Int32(), "step": pl.Int64()}

SCHEMAS: dict[str, pl.Schema] = {
    # One timed phase: seconds, `start` on the clock of the rank's host.
    "spans": pl.Schema(
        _PLACE | {"name": pl.String(), "start": pl.Float64(), "duration": pl.Float64()}
    ),
    # What the training reported about itself, such as the loss.
    "metrics": pl.Schema(_PLACE | {"name": pl.String(), "value": pl.Float64()}),
    # What a micro-batch held; `ids` and `sizes` as JSON because every data set has its own kind.
    "batches": pl.Schema(_PLACE | {"index": pl.Int64(), "ids": pl.String(), "sizes": pl.String()}),
    # Long, because hosts differ in what they can measure; nested names are joined by dots.
    "resources": pl.Schema(_PLACE | {"name": pl.String(), "value": pl.Float64()}),
    # One setting of a rank's environment or of the run's code; values as JSON.
    "environment": pl.Schema(
        {"attempt": pl.Int32(), "rank": pl.Int32(), "key": pl.String(), "value": pl.String()}
    ),
    # The tensors of each stream; `step` is the first one recorded with this layout.
    "layout": pl.Schema(
        {
            "rank": pl.Int32(),
            "stream": pl.String(),
            "step": pl.Int64(),
            "position": pl.Int32(),
            "tensor": pl.String(),
            "dtype": pl.String(),
            "shape": pl.List(pl.Int64()),
            "bytes": pl.Int64(),
            "blocks": pl.Int64(),
            "block_bytes": pl.Int64(),
        }
    ),
    # What a rank said in words, `kind` being "note" or "end".
    "notes": pl.Schema(_PLACE | {"kind": pl.String(), "text": pl.String()}),
}
"""Columns and types of each table of one run."""

RUNS = pl.Schema(
    {
        "run": pl.String(),
        "state": pl.String(),
        "attempts": pl.Int32(),
        "world_size": pl.Int32(),
        "ranks": pl.Int32(),
        "steps": pl.Int64(),
        "last_step": pl.Int64(),
        "checkpoints": pl.Int32(),
        "bytes": pl.Int64(),
        "first_loss": pl.Float64(),
        "last_loss": pl.Float64(),
        "problem": pl.String(),
    }
)
"""Columns of the list of runs in a lab."""
