"""What optimizers (and the loss scaler) carry from step to step, as named tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from reprolab.capture.census import Census
from reprolab.errors import UnsupportedTraining

Optimizers = Mapping[str, torch.optim.Optimizer]
"""Optimizers by prefix of their tensors' names; one alone has the empty prefix."""


def by_prefix(optimizer: object) -> dict[str, torch.optim.Optimizer]:
    """One optimizer, a sequence or a mapping of them, by prefix.

    Raises
    ------
    TypeError
        For anything else.
    UnsupportedTraining
        For optimizers that shard their state.
    """
    if optimizer is None:
        return {}
    found: dict[str, Any]
    if isinstance(optimizer, Mapping):
        found = {f"{key}.": value for key, value in optimizer.items()}
    elif isinstance(optimizer, Sequence):
        found = {f"{index}.": value for index, value in enumerate(optimizer)}
    else:
        found = {"": optimizer}
    for value in found.values():
        if not isinstance(value, torch.optim.Optimizer):
            raise TypeError(
                "optimizer must be a torch.optim.Optimizer, or a list or dict of them; "
                f"got {type(value).__name__}"
            )
        if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(value).__mro__):
            raise UnsupportedTraining(
                "ZeroRedundancyOptimizer shards its state over the ranks, which is not captured "
                "yet; use a plain optimizer"
            )
    return found


def check_parameters(optimizers: Optimizers, census: Census) -> None:
    """Raise `UnsupportedTraining` if an optimizer updates a tensor that the model does not have."""
    known = {id(parameter) for parameter in census.parameters}
    for prefix, optimizer in optimizers.items():
        for g, group in enumerate(optimizer.param_groups):
            for p, parameter in enumerate(group["params"]):
                if id(parameter) not in known:
                    raise UnsupportedTraining(
                        f"parameter {p} of {prefix}param_groups[{g}], of shape "
                        f"{tuple(parameter.shape)}, is not a parameter of the model; pass the "
                        "model that is trained, and build the optimizer from its parameters"
                    )


def optimizer_tensors(
    optimizers: Optimizers, census: Census, scaler: object = None
) -> list[tuple[str, torch.Tensor]]:
    """State tensors in the order of the model's parameters, then hyperparameters.

    Every number is a 0-d float64 tensor, so that the moments of its fingerprint show its value:
    ``param_groups.0.lr``, ``param_groups.0.betas.1``. Flags count as 0 and 1.
    """
    tensors: list[tuple[str, torch.Tensor]] = []
    numbers: list[tuple[str, float]] = []
    for prefix, optimizer in optimizers.items():
        for name, parameter in zip(census.names, census.parameters, strict=True):
            if parameter in optimizer.state:
                for key, value in optimizer.state[parameter].items():
                    _sort(f"{prefix}{name}.{key}", value, tensors, numbers)
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    _sort(f"{prefix}param_groups.{index}.{key}", value, tensors, numbers)
    # A scaler makes these tensors at its first use; asking it for numbers could wait for a GPU.
    for key in ("_scale", "_growth_tracker"):
        value = getattr(scaler, key, None)
        if isinstance(value, torch.Tensor):
            tensors.append((f"scaler.{key[1:]}", value))
    values = torch.tensor([value for _, value in numbers], dtype=torch.float64).unbind()
    return tensors + [(name, value) for (name, _), value in zip(numbers, values, strict=True)]


def _sort(
    name: str,
    value: Any,
    tensors: list[tuple[str, torch.Tensor]],
    numbers: list[tuple[str, float]],
) -> None:
    if isinstance(value, torch.Tensor):
        tensors.append((name, value))
    elif isinstance(value, bool | int | float):
        numbers.append((name, float(value)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _sort(f"{name}.{index}", item, tensors, numbers)
    elif isinstance(value, dict):
        for key, item in value.items():
            _sort(f"{name}.{key}", item, tensors, numbers)
