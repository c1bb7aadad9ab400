"""A trace: what the ranks of a job did when, whoever recorded it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from reprolab.tables.operations import OPERATIONS


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Operations of all ranks, and what is known beside them."""

    operations: pl.DataFrame
    """One row an operation, with exactly the columns of ``OPERATIONS``."""
    source: str
    """What wrote it: ``"table"``, ``"kineto"``, ``"flight recorder"``, ``"dlio"``, ``"run"``."""
    path: str
    """Where it was read from."""
    world_size: int | None = None
    """Processes of the job; more than the traced ranks where only some were traced."""
    laid_out: bool = False
    """Whether starts were laid out while reading, so that they say nothing about clocks."""
    notes: tuple[str, ...] = ()
    """What was left out or assumed while reading, in words."""

    def __post_init__(self) -> None:
        if self.operations.schema != OPERATIONS:
            raise ValueError(f"operations must have the schema {OPERATIONS}")

    @property
    def ranks(self) -> list[int]:
        """Ranks that have operations."""
        return self.operations["rank"].unique().sort().to_list()

    @property
    def steps(self) -> list[int]:
        """Steps that have operations."""
        return self.operations["step"].unique().sort().to_list()
