"""A training's settings, of whatever kind, as plain JSON values that compare between runs."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

_MOST_NUMBERS = 1024


def plain(value: Any) -> Any:
    """`value` as None, bool, int, float, str, list and dict.

    Dataclasses, argparse namespaces and mappings become dicts; numbers JSON does not know become
    text (``"nan"``, ``"inf"``); small arrays become lists. Anything else is named by its type,
    because an address in memory would differ in every run.

    Examples
    --------
    >>> plain({"lr": 1e-3, "path": PurePath("a"), "dtype": torch.bfloat16, "clip": float("inf")})
    {'lr': 0.001, 'path': 'a', 'dtype': 'torch.bfloat16', 'clip': 'inf'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, PurePath | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, torch.Tensor | np.ndarray):
        if (value.size if isinstance(value, np.ndarray) else value.numel()) > _MOST_NUMBERS:
            return f"{type(value).__name__} of shape {tuple(value.shape)}"
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, argparse.Namespace):
        return plain(vars(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
