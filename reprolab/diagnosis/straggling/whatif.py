"""What if some operations had been faster: the step times, at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprolab.diagnosis.straggling.families import FAMILIES, families_of
from reprolab.diagnosis.straggling.model import Model

KEYS = ("rank", "stage", "dp", "operation", "family", "step")
"""What a fix may be limited to."""

Fix = Mapping[str, object]
"""Limits by the keys above, each one value or several; and ``to``: the share of the measured
duration that remains, such as 0.8, or ``"ideal"`` (the default)."""


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """Step times after some fixes."""

    steps: np.ndarray
    """int64 [steps]"""
    before: np.ndarray
    """float64 [steps]: replayed seconds as it was."""
    after: np.ndarray
    """float64 [steps]: replayed seconds with the fixes."""
    ideal: float
    """Seconds of the ideal step."""

    @property
    def seconds(self) -> float:
        """Mean step time with the fixes."""
        return float(self.after.mean())

    @property
    def saved(self) -> float:
        """Seconds saved in the mean step."""
        return float(self.before.mean() - self.after.mean())

    @property
    def share(self) -> float:
        """Share of the mean step that is saved."""
        return self.saved / float(self.before.mean())

    @property
    def slowdown(self) -> float:
        """S that remains."""
        return self.seconds / self.ideal


def what_if(model: Model, fix: Fix | Sequence[Fix]) -> WhatIf:
    """Replay a model with some operations changed.

    Parameters
    ----------
    model : Model
    fix : mapping, or several
        For example ``{"rank": 3}``, ``{"operation": "forward-compute", "to": 0.9}``, or
        ``{"rank": [0, 1], "step": range(10, 20), "to": "ideal"}``. Later ones win where they meet.

    Raises
    ------
    ValueError
        If a key is unknown, a value names nothing, or ``to`` is negative.
    """
    durations = model.timing.own.copy()
    for one in [fix] if isinstance(fix, Mapping) else fix:
        unknown = set(one) - {*KEYS, "to"}
        if unknown:
            raise ValueError(f"a fix knows {', '.join(KEYS)} and to; got {', '.join(unknown)}")
        rows, lanes = _chosen(model, one)
        to = one.get("to", "ideal")
        if to == "ideal":
            durations[np.ix_(rows, lanes)] = model.typical[rows][:, None]
        elif isinstance(to, int | float) and to >= 0:
            durations[np.ix_(rows, lanes)] = to * model.timing.own[np.ix_(rows, lanes)]
        else:
            raise ValueError(f"to must be 'ideal' or a share of at least 0; got {to!r}")
    after = model.steps_with(durations)
    return WhatIf(model.timing.steps, model.actual, after, model.ideal)


def _chosen(model: Model, fix: Fix) -> tuple[np.ndarray, np.ndarray]:
    nodes = model.graph.nodes
    chosen = np.ones(len(nodes), bool)
    for key in ("rank", "stage", "dp", "operation"):
        if key in fix:
            chosen &= _is_in(nodes[key].to_numpy(), fix[key], key)
    if "family" in fix:
        names = np.array(FAMILIES)[families_of(model.graph)]
        chosen &= _is_in(names, fix["family"], "family")
    lanes = np.ones(len(model.timing.steps), bool)
    if "step" in fix:
        lanes = _is_in(model.timing.steps, fix["step"], "step")
    return np.flatnonzero(chosen), np.flatnonzero(lanes)


def _is_in(values: np.ndarray, wanted: object, key: str) -> np.ndarray:
    named = [wanted]
    if isinstance(wanted, Iterable) and not isinstance(wanted, str):
        named = [*wanted]
    absent = [one for one in named if not (values == one).any()]
    if absent:
        known = np.unique(values).tolist()
        listed = ", ".join(map(str, known[:10])) + (", ..." if len(known) > 10 else "")
        raise ValueError(f"there is no {key} {absent[0]!r}; known: {listed}")
    return np.isin(values, np.array(named))
