"""How long the phases of a step took, and what recording them cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Span:
    """One timed phase of one step on one rank."""

    name: str
    """One of :data:`reprolab.vocabulary.PHASES`."""
    start: float
    """Seconds since the epoch, on a clock that never steps back within a run."""
    duration: float
    """Seconds."""


class Spans:
    """Collects the spans of the step in progress.

    Times handed in are those of ``time.perf_counter``.
    """

    def __init__(self) -> None:
        self._epoch = time.time() - perf_counter()
        self._spans: list[Span] = []
        self.own = 0.0
        """Seconds that recording itself took in this step."""

    def add(self, name: str, began: float, ended: float | None = None) -> None:
        """Note a span that ends now, or ended at `ended`."""
        ended = perf_counter() if ended is None else ended
        self._spans.append(Span(name, self._epoch + began, max(0.0, ended - began)))

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Count the time inside as recording's own."""
        began = perf_counter()
        try:
            yield
        finally:
            self.own += perf_counter() - began

    def take(self) -> list[Span]:
        """The spans so far, in the order they ended; starts afresh."""
        spans, self._spans = self._spans, []
        return spans

    def take_own(self, began: float) -> Span:
        """Recording's own time as one span that starts at `began`; starts afresh.

        Its duration is the sum over all the places where recording ran, so it may reach over
        the spans of the training.
        """
        span = Span("capture", self._epoch + began, self.own)
        self.own = 0.0
        return span
