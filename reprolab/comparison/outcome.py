"""What a comparison found, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.comparison.causality import Origin
from reprolab.comparison.first import FirstDifference
from reprolab.comparison.matching import LayoutDifference


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """How much was compared."""

    steps: np.ndarray
    """Steps at which anything was compared, int64, ascending."""
    ranks: tuple[int, ...]
    streams: tuple[str, ...]
    """In causal order."""
    tensors: int
    """Different tensors, each stream counted."""
    nbytes: int
    """Bytes of all tensors, at all steps and ranks, whose fingerprints were compared."""
    final: int | None
    """The step whose start is the state after the last one, where only state was recorded."""

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "steps": len(self.steps),
            "first_step": int(self.steps[0]) if len(self.steps) else None,
            "last_step": int(self.steps[-1]) if len(self.steps) else None,
            "ranks": list(self.ranks),
            "streams": list(self.streams),
            "tensors": self.tensors,
            "bytes": self.nbytes,
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """Everything that the verdict speaks of."""

    names: tuple[str, str]
    """What the sides are called; the same one twice where ranks of one run are compared."""
    sides: tuple[str, str]
    """What a and b are called: the runs, or ranks of one run."""
    reference: int | None
    """The rank the others were compared with; None where two runs were compared."""
    reference_agrees: tuple[int, ...]
    """Ranks that agree with the reference at the first difference."""
    extent: Extent
    first: FirstDifference | None
    origin: Origin | None
    before: tuple[str, ...]
    """Streams that agree at the step of the first difference, before it in causal order."""
    by_rank: bool
    """False where the world sizes differ."""
    missing: bool
    """Whether ranks are missing, so that what they did is not known."""
    last_different: int | None
    """Last step at which anything differs."""
    still: pl.DataFrame
    """Growth at the last step compared, of the state streams that still differ."""
    settings: tuple[tuple[str, str, float, float], ...]
    """Stream, tensor, value in a and in b of the other scalars that differ at the first step."""
    samples: str | None
    """What the identities of the samples say where the batches differ first."""
    layout_differences: tuple[LayoutDifference, ...]
    configuration: pl.DataFrame
    environment: pl.DataFrame
    metrics: pl.DataFrame
    losses: tuple[int, float, float] | None
    """Last step with a loss on both sides, and the mean losses there."""
    notes: tuple[str, ...]
    """What was not compared."""
    endings: tuple[str, ...]
    """How a run ended, where not all of its ranks finished."""
    damage: tuple[str, ...]
