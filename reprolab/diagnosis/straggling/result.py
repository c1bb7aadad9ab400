"""What the analysis of a trace found, and what can be asked of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.attribution import Attribution
from reprolab.diagnosis.straggling.causes import Cause, Finding
from reprolab.diagnosis.straggling.cost import Cost, cost
from reprolab.diagnosis.straggling.interval import Interval
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.planning import Proposal, propose
from reprolab.diagnosis.straggling.whatif import Fix, WhatIf, what_if


@dataclass(frozen=True, eq=False)
class Stragglers:
    """Who was late in a trace, what it cost, and what to do about it."""

    headline: str
    """The class in a few words, such as ``"stage imbalance, no bad rank"``."""
    verdict: str
    """Two to five plain sentences: who, which steps, class, cost, what to do."""
    cause: Cause
    """The class, with its advice."""
    late: tuple[int, ...]
    """Ranks to blame, the costliest first; empty where no rank is."""
    slowdown: Interval
    """S, the mean step time over the ideal one, with its interval."""
    attribution: Attribution
    """Slowdown by replica, stage, operation and rank, and of the worst 3 % of the ranks."""
    rows: dict[str, pl.DataFrame]
    """Evidence: ``episodes``, ``culprits``, ``shares``, ``lateness``, ``ranks``, ``heat`` and
    ``steps``; for a run also ``batches`` and ``resources`` of the rank-steps in an episode."""
    notes: tuple[str, ...]
    """What was left out or assumed, in words."""
    finding: Finding
    model: Model
    """The replay behind it all."""
    world_size: int
    """Processes of the job."""

    def what_if(self, fix: Fix | Sequence[Fix]) -> WhatIf:
        """Step times, had some operations been ideal or a share as long.

        Parameters
        ----------
        fix : mapping, or several
            Limits by ``rank``, ``stage``, ``dp``, ``operation``, ``family`` and ``step``, each one
            value or several, and ``to``: ``"ideal"`` or the share of the duration that remains. For
            example ``{"rank": 3}`` or ``{"family": "data loading", "to": 0.5}``.

        Raises
        ------
        ValueError
            If a key or value means nothing here.
        """
        return what_if(self.model, fix)

    def cost(
        self,
        *,
        devices: int | None = None,
        steps: int | None = None,
        watts: float | None = None,
        kilograms_co2_per_kilowatt_hour: float | None = None,
    ) -> Cost:
        """What the slowdown costs.

        Parameters
        ----------
        devices : int, optional
            Devices of the job; as many as processes when omitted.
        steps : int, optional
            Steps to count; those of the trace when omitted.
        watts, kilograms_co2_per_kilowatt_hour : float, optional
            Factors for energy and carbon dioxide.

        Raises
        ------
        ValueError
            If a number is negative, or a carbon factor comes without a power.
        """
        return cost(
            self.model,
            devices=self.world_size if devices is None else devices,
            steps=steps,
            watts=watts,
            kilograms_co2_per_kilowatt_hour=kilograms_co2_per_kilowatt_hour,
        )

    def plan(
        self,
        microbatches: np.ndarray | int | None = None,
        *,
        horizon: int = 1000,
        cost: float = 0.0,
        least_gain: float = 0.01,
    ) -> Proposal:
        """Microbatch counts that let all replicas finish together, and other measures.

        Parameters
        ----------
        microbatches : int or int [replicas], optional
            What each replica takes now; read off the trace when omitted.
        horizon : int
            Steps for which the plan would hold.
        cost : float
            Seconds that switching takes, once.
        least_gain : float
            Share of the step below which a gain is not worth a switch.
        """
        advice = () if self.cause is Cause.NONE else (self.cause.advice,)
        return propose(
            self.model,
            microbatches,
            advice,
            horizon=horizon,
            cost=cost,
            least_gain=least_gain,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything a program may want, ready for JSON: no NaN, no infinity."""
        split = self.attribution
        found = {
            "headline": self.headline,
            "verdict": self.verdict,
            "cause": self.cause.name.lower(),
            "late": list(self.late),
            "slowdown": asdict(self.slowdown),
            "ideal_step_seconds": self.model.ideal,
            "mean_step_seconds": float(self.model.actual.mean()),
            "explained_by_last_stage": split.explained_by_last_stage,
            "explained_by_worst_ranks": split.explained_by_worst,
            "worst_ranks": list(split.worst),
            "slowdown_by": {
                "stage": split.by_stage.to_dicts(),
                "replica": split.by_replica.to_dicts(),
                "rank": split.by_rank.to_dicts(),
                "operation": split.by_operation.to_dicts(),
            },
            "shares": self.rows["shares"].to_dicts(),
            "culprits": self.rows["culprits"].to_dicts(),
            "episodes": self.rows["episodes"].to_dicts(),
            "ranks": self.rows["ranks"].to_dicts(),
            "cost": asdict(self.cost()),
            "notes": list(self.notes),
        }
        return _finite(found)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
