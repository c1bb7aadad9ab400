"""Times the forward pass, and notices when the backward pass begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch
from torch import nn

from reprolab.capture.spans import Spans


class Hook:
    """A hook of a module that stays behind when the module is copied or pickled.

    Trainings deep-copy models (for moving averages) and save them whole while they are recorded;
    the copy must neither carry the recorder along nor need reprolab to be loaded.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        """Do what the hook is for."""
        # A compiler traces hooks together with the model; this keeps its graph as it would be.
        if not torch.compiler.is_compiling():
            self._call(*args)

    def __deepcopy__(self, memo: dict) -> Callable[..., None]:
        return _nothing()

    def __reduce__(self) -> tuple:
        return getattr, (nullcontext(), "__exit__")


def _nothing() -> Callable[..., None]:
    """Something of the standard library that takes any arguments, does nothing, and pickles."""
    return nullcontext().__exit__


class ForwardTimer:
    """Spans ``forward``; knows since when the backward pass runs.

    Parameters
    ----------
    model : Module
        What the training calls: with its wrappers, so that hooks run outside of compiled code.
    spans : Spans
    """

    def __init__(self, model: nn.Module, spans: Spans) -> None:
        self._model = model
        self._spans = spans
        self._began: float | None = None
        self.ended: float | None = None
        """When the latest forward pass ended."""
        self.backward_began: float | None = None
        """When the gradient reached the model's output in the latest backward pass."""
        self.passes = 0
        """Forward passes in this step."""
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before)),
            model.register_forward_hook(Hook(self._after)),
        ]

    def remove(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple) -> None:
        if torch.is_grad_enabled():
            self._began = perf_counter()

    def _after(self, module: nn.Module, args: tuple, output: object) -> None:
        if self._began is None:
            return
        self.ended = perf_counter()
        self._spans.add("forward", self._began, self.ended)
        self._began = None
        self.backward_began = None
        self.passes += 1
        tensor = _first_of_graph(output)
        if tensor is not None:
            tensor.register_hook(self._reached)

    def _reached(self, gradient: torch.Tensor) -> None:
        self.backward_began = perf_counter()


def _first_of_graph(output: object) -> torch.Tensor | None:
    """The first tensor in `output` that gradients will flow through."""
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad and not output.is_leaf else None
    values: Any = ()
    if isinstance(output, Mapping):
        values = output.values()
    elif isinstance(output, list | tuple):
        values = output
    elif hasattr(output, "__dict__"):
        values = vars(output).values()
    found = (_first_of_graph(value) for value in values if isinstance(value, torch.Tensor))
    return next((tensor for tensor in found if tensor is not None), None)
