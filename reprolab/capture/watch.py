"""All hooks of a recorder on a training, put on and taken off together."""

from __future__ import annotations

from collections.abc import Iterator

from reprolab.capture.census import Census
from reprolab.capture.forward import ForwardTimer
from reprolab.capture.gradients import GradientRows, GradientWatch, gradient_layout
from reprolab.capture.optimizer_state import Optimizers
from reprolab.capture.optimizer_steps import OptimizerWatch
from reprolab.capture.spans import Spans
from reprolab.kernels import Fingerprint
from reprolab.policy import Policy
from reprolab.vocabulary import Layout


class Watch:
    """Forward, backward and optimizer hooks, and the gradient streams they fill.

    Parameters
    ----------
    census : Census
    optimizers : mapping
    policy : Policy
    spans : Spans
    reducing : bool
        Whether other ranks may contribute to the gradients; where none do, ``grads_local`` and
        ``grads`` are the same and read once.
    """

    def __init__(
        self,
        census: Census,
        optimizers: Optimizers,
        policy: Policy,
        spans: Spans,
        *,
        reducing: bool,
    ) -> None:
        self._optimizers = optimizers
        self._policy = policy
        self._spans = spans
        self._reducing = reducing
        self._notes: list[str] = []
        self._reading = True
        self._attach(census)

    def _attach(self, census: Census) -> None:
        self.census = census
        layout = gradient_layout(census, self._policy.block_bytes)
        wanted = set(self._policy.streams)
        self._rows: dict[str, GradientRows] = {
            name: GradientRows(name, layout) for name in ("grads_local", "grads") if name in wanted
        }
        if not self._reducing:
            self._rows = dict.fromkeys(self._rows, GradientRows("grads", layout))
        if "grads_used" in wanted and self._optimizers:
            self._rows["grads_used"] = GradientRows("grads_used", layout)
        local, reduced = self._rows.get("grads_local"), self._rows.get("grads")
        if not self._reducing:
            local = reduced = local or reduced
        self._forward = ForwardTimer(census.model, self._spans)
        self._gradients = GradientWatch(
            census,
            local,
            reduced,
            reducing=self._reducing,
            forward=self._forward,
            spans=self._spans,
        )
        self._steps = OptimizerWatch(
            self._optimizers, census, self._rows.get("grads_used"), self._spans
        )
        self.reading = self._reading

    def remove(self) -> None:
        """Take all hooks off the training."""
        self._forward.remove()
        self._gradients.remove()
        self._steps.remove()

    def follow(self) -> Census | None:
        """Attach anew if the model changed; returns the new census then."""
        if self.census.current():
            self._gradients.attend()
            return None
        old = set(self.census.names)
        census = Census.of(self.census.model)
        new = set(census.names)
        changes = f"{_listed(new - old)} added, {_listed(old - new)} removed"
        self._notes.append(f"the model changed: {changes}" if old != new else "the model changed")
        self.remove()
        self._attach(census)
        return census

    @property
    def reading(self) -> bool:
        """Whether fingerprints are due in this step; time is taken in every step."""
        return self._reading

    @reading.setter
    def reading(self, due: bool) -> None:
        self._reading = self._gradients.reading = self._steps.reading = due

    @property
    def active(self) -> bool:
        """Whether the training did anything in this step."""
        return bool(self._forward.passes or self._gradients.passes or self._steps.stepped)

    def take_streams(self) -> Iterator[tuple[str, Layout, Fingerprint]]:
        """The gradient streams of the step; starts afresh."""
        self._forward.passes = self._gradients.passes = 0
        found: dict[int, Fingerprint] = {}
        for name, rows in self._rows.items():
            if id(rows) not in found:
                found[id(rows)] = rows.take()
            yield name, rows.layout, found[id(rows)]

    def take_notes(self) -> list[str]:
        """What else is worth saying about the step; starts afresh."""
        notes, self._notes = self._notes, []
        for prefix in self._steps.take_skipped():
            name = f"optimizer {prefix[:-1]!r}" if prefix else "the optimizer"
            notes.append(f"{name} made no step")
        return notes


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
