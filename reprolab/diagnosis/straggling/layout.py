"""From a trace to its what-if model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.clocks import Clocks
from reprolab.diagnosis.straggling.groups import clocks_of, on_one_clock, with_groups
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.pipeline import BACKWARD, FORWARD, KNOWN, pipeline_graph
from reprolab.diagnosis.straggling.serial import serial_graph, serial_operations
from reprolab.diagnosis.straggling.timing import time


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A trace, laid out for analysis."""

    operations: pl.DataFrame
    """Operations as recorded, on one clock where that was possible, with their groups."""
    model: Model
    clocks: Clocks
    kind: str
    """``"pipeline"`` or ``"serial"``: how the graph was found."""
    notes: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Whether times of different ranks may be compared; assumed where nothing can tell."""
        return _comparable(self.clocks)


def lay_out(operations: pl.DataFrame) -> Layout:
    """Find clocks, graph and times of a table of operations.

    Parameters
    ----------
    operations : polars.DataFrame
        With the columns of ``OPERATIONS``.

    Raises
    ------
    TraceError
        If no step has records of all ranks, or the communications contradict each other.
    """
    grouped = with_groups(operations)
    clocks = clocks_of(grouped)
    common = on_one_clock(grouped, clocks)
    # Corrected clocks are good for starts; durations need no clock, so transfers come from those.
    agree = not clocks.corrected and not np.isnan(clocks.error)
    notes: list[str] = []
    if is_pipeline(common):
        try:
            graph = pipeline_graph(common)
        except ValueError as error:
            notes.append(
                f"The operations look like a pipeline, but {error}; each rank was taken to do one "
                "thing after the other."
            )
        else:
            timing = time(graph, common, synchronised=agree)
            return Layout(common, Model(graph, timing), clocks, "pipeline", timing.notes)
    placed, left_out = serial_operations(common, synchronised=_comparable(clocks))
    graph = serial_graph(placed)
    timing = time(graph, placed, synchronised=agree)
    return Layout(
        common, Model(graph, timing), clocks, "serial", (*notes, *left_out, *timing.notes)
    )


def _comparable(clocks: Clocks) -> bool:
    return bool(np.isnan(clocks.error) or clocks.aligned.all())


def is_pipeline(operations: pl.DataFrame) -> bool:
    """Whether the operations are those of a training in a pipeline, or its replicas."""
    names = set(operations["operation"].unique().to_list())
    return {FORWARD, BACKWARD} <= names <= KNOWN
