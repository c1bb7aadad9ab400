"""Reads the gradients that each optimizer really uses, and times its step."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

from reprolab.capture.census import Census
from reprolab.capture.gradients import GradientRows
from reprolab.capture.optimizer_state import Optimizers
from reprolab.capture.spans import Spans


class OptimizerWatch:
    """Hooks every optimizer's ``step``.

    Parameters
    ----------
    optimizers : mapping
    census : Census
    used : GradientRows or None
        Where to read ``grads_used`` into; ``None`` where it is not wanted.
    spans : Spans
    """

    def __init__(
        self, optimizers: Optimizers, census: Census, used: GradientRows | None, spans: Spans
    ) -> None:
        self._optimizers = optimizers
        self._parameters = census.parameters[::-1]
        self._used = used
        self._spans = spans
        self._began = 0.0
        self._stepped: set[str] = set()
        self.reading = True
        """Whether fingerprints are due in this step; time is taken in every step."""
        self._handles = []
        for prefix, optimizer in optimizers.items():
            self._handles += [
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(self._after(prefix)),
            ]

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.reading = False

    @property
    def stepped(self) -> bool:
        """Whether any optimizer made a step."""
        return bool(self._stepped)

    def take_skipped(self) -> list[str]:
        """Prefixes of the optimizers that made no step in this one; starts afresh."""
        skipped = [prefix for prefix in self._optimizers if prefix not in self._stepped]
        self._stepped.clear()
        return skipped

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if getattr(optimizer, "grad_scale", None) is None:
            self._read(optimizer)
        self._began = perf_counter()

    def _after(self, prefix: str) -> Any:
        def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if torch.compiler.is_compiling():
                return
            self._spans.add("optimizer", self._began)
            self._stepped.add(prefix)
            # A fused optimizer unscales by itself, and only now holds the gradients it used.
            if getattr(optimizer, "grad_scale", None) is not None:
                self._read(optimizer)

        return stepped

    def _read(self, optimizer: torch.optim.Optimizer) -> None:
        if self._used is None or not self.reading:
            return
        with self._spans.capturing():
            mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self._used.read_all([p.grad if id(p) in mine else None for p in self._parameters])
