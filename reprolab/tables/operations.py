"""Operations: what each rank did when, one row an operation; and phases, their sums.

Importers of foreign traces write these columns, and a CSV or Parquet file that has them is opened
as it is. Only ``rank``, ``step``, ``operation``, ``start`` and ``duration`` are required.
"""

from __future__ import annotations

import polars as pl

from reprolab.errors import TraceError

WORK, BARRIER, EXCHANGE, SEND, RECV = "work", "barrier", "exchange", "send", "recv"

ROLES = (WORK, BARRIER, EXCHANGE, SEND, RECV)
"""How an operation depends on other ranks.

- ``work``: on nobody; its duration is the rank's own.
- ``barrier``: a collective that nobody leaves before the last one entered (all-reduce,
  all-gather, reduce-scatter, barrier); its duration includes waiting.
- ``exchange``: a collective that some may leave early (broadcast, reduce, gather, scatter,
  all-to-all); its duration says nothing about who came last.
- ``send`` and ``recv``: the two ends of a message.
"""

OPERATIONS = pl.Schema(
    {
        "rank": pl.Int32(),
        "step": pl.Int64(),
        # What was done: "forward-compute", "all-reduce", "data", ...
        "operation": pl.String(),
        # One of ROLES; derived from the name where it is missing.
        "role": pl.String(),
        # Seconds, on the rank's own clock; clocks of different ranks need not agree.
        "start": pl.Float64(),
        "duration": pl.Float64(),
        # Number among the operations of this name, rank and step, in order of start.
        "sequence": pl.Int32(),
        # Place in the mesh: data-parallel position and pipeline stage.
        "dp": pl.Int32(),
        "stage": pl.Int32(),
        # Which of its stage's model parts (interleaved pipelines) and which microbatch.
        "part": pl.Int32(),
        "microbatch": pl.Int32(),
        # Operations of one step with the same group are one communication.
        "group": pl.String(),
        # Size of the work and of the message, where known.
        "tokens": pl.Int64(),
        "bytes": pl.Int64(),
    }
)
"""Columns of a table of operations."""

REQUIRED = ("rank", "step", "operation", "start", "duration")
"""Columns that a table of operations cannot do without."""

PHASES = pl.Schema(
    {
        "rank": pl.Int32(),
        "step": pl.Int64(),
        "phase": pl.String(),
        "role": pl.String(),
        # Sum over the operations of this phase, and how many they were.
        "seconds": pl.Float64(),
        "operations": pl.Int32(),
        "dp": pl.Int32(),
        "stage": pl.Int32(),
    }
)
"""Columns of a table of phases: operations summed by rank, step and name."""

_ROLE_OF_WORD = (
    (RECV, ("recv", "receive", "irecv")),
    (SEND, ("send", "isend")),
    (
        BARRIER,
        (
            "all-reduce",
            "allreduce",
            "all-gather",
            "allgather",
            "reduce-scatter",
            "reducescatter",
            "barrier",
            "clip-main-grad",
        ),
    ),
    (EXCHANGE, ("all-to-all", "alltoall", "broadcast", "reduce", "gather", "scatter")),
)


def role_of(operation: str) -> str:
    """Role of an operation, from its name.

    Examples
    --------
    >>> role_of("grads-reduce-scatter"), role_of("forward-recv"), role_of("forward-compute")
    ('barrier', 'recv', 'work')
    """
    plain = operation.lower().replace("_", "-")
    for role, words in _ROLE_OF_WORD:
        if any(word in plain for word in words):
            return role
    return WORK


def conform(frame: pl.DataFrame, *, source: str = "operations") -> tuple[pl.DataFrame, list[str]]:
    """Bring a table of operations to :data:`OPERATIONS`.

    Parameters
    ----------
    frame : polars.DataFrame
        At least the :data:`REQUIRED` columns; others of the schema are derived or left null, and
        columns that the schema does not know are dropped.
    source : str
        What to call the table in an error.

    Returns
    -------
    polars.DataFrame
        The operations in the order of rank, step and start.
    list of str
        What was left out, in words.

    Raises
    ------
    TraceError
        If a required column is missing or of a wrong type, or if no row is usable.
    """
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        raise TraceError(
            f"a table of operations needs the columns {', '.join(REQUIRED)}; "
            f"{', '.join(missing)} missing, found {', '.join(frame.columns) or 'none'}",
            path=source,
        )
    known = {name: dtype for name, dtype in OPERATIONS.items() if name in frame.columns}
    try:
        frame = frame.select(pl.col(name).cast(dtype) for name, dtype in known.items())
    except pl.exceptions.PolarsError as error:
        raise TraceError(
            f"a column of the operations has the wrong type: {error}", path=source
        ) from error
    frame, notes = _usable(frame, source)
    frame = frame.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in OPERATIONS.items() if name not in known
    )
    names = frame["operation"].unique()
    roles = pl.DataFrame({"operation": names, "_role": [role_of(name) for name in names]})
    frame = frame.join(roles, on="operation", how="left").with_columns(
        pl.coalesce("role", "_role").alias("role"),
        pl.col("dp").fill_null(pl.col("rank")) if "dp" not in known else pl.col("dp"),
        pl.col("stage").fill_null(0),
    )
    frame = frame.sort("rank", "step", "start", maintain_order=True)
    if "sequence" not in known:
        place = ("rank", "step", "operation")
        frame = frame.with_columns(
            pl.int_range(pl.len(), dtype=pl.Int32).over(place).alias("sequence")
        )
    return frame.select(list(OPERATIONS)), notes


def phases_of(operations: pl.DataFrame) -> pl.DataFrame:
    """Sum operations by rank, step and name into :data:`PHASES`."""
    return (
        operations.group_by("rank", "step", pl.col("operation").alias("phase"), maintain_order=True)
        .agg(
            pl.col("role").first(),
            pl.col("duration").sum().alias("seconds"),
            pl.len().cast(pl.Int32).alias("operations"),
            pl.col("dp").first(),
            pl.col("stage").first(),
        )
        .select(list(PHASES))
    )


def _usable(frame: pl.DataFrame, source: str) -> tuple[pl.DataFrame, list[str]]:
    complete = pl.all_horizontal(pl.col(REQUIRED).is_not_null())
    finite = pl.col("start").is_finite() & pl.col("duration").is_finite()
    good = complete & finite & (pl.col("duration") >= 0)
    bad = frame.filter(~good.fill_null(False))
    if bad.is_empty():
        kept, notes = frame, []
    else:
        kept = frame.filter(good.fill_null(False))
        row = bad.row(0, named=True)
        notes = [
            f"{len(bad)} of {len(frame)} operations have a negative, missing or infinite time and "
            f"were left out (the first: {row['operation']}, rank {row['rank']}, "
            f"step {row['step']}, duration {row['duration']})"
        ]
    if kept.is_empty():
        raise TraceError("no usable operation; expected at least one with a duration", path=source)
    return kept, notes
