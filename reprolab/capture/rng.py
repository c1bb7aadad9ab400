"""The states of all random generators that a training draws from, as bytes."""

from __future__ import annotations

import json
import random

import numpy as np
import torch

_PAGE = 256


def rng_states() -> list[tuple[str, torch.Tensor]]:
    """Read every generator's state; draws nothing.

    Returns
    -------
    list of (name, uint8 tensor)
        ``torch`` (its default CPU generator), ``numpy`` (the global generator), ``python``, and
        ``cuda:<i>`` for each device once CUDA is in use. Mersenne twisters are their 624 words,
        then position, then the kept second normal deviate; other NumPy generators are JSON.
    """
    states = [
        ("torch", torch.get_rng_state()),
        ("numpy", torch.from_numpy(_numpy_state())),
        ("python", torch.from_numpy(_python_state())),
    ]
    if torch.cuda.is_initialized():
        states += [
            (f"cuda:{index}", torch.cuda.get_rng_state(index))
            for index in range(torch.cuda.device_count())
        ]
    return states


def _numpy_state() -> np.ndarray:
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - trainings draw from this one
    if state["bit_generator"] == "MT19937":
        inner = state["state"]
        return _twister(inner["key"], inner["pos"], state["gauss"] if state["has_gauss"] else None)
    text = json.dumps(state, sort_keys=True, default=lambda value: np.asarray(value).tolist())
    # Numbers change their length as they are drawn; whole pages keep the shape.
    return np.frombuffer(text.ljust(-(-len(text) // _PAGE) * _PAGE).encode(), np.uint8).copy()


def _python_state() -> np.ndarray:
    _, words, gauss = random.getstate()
    return _twister(np.array(words[:-1], np.uint32), words[-1], gauss)


def _twister(key: np.ndarray, position: int, gauss: float | None) -> np.ndarray:
    return np.concatenate(
        [
            key.astype("<u4").view(np.uint8),
            np.array([position, gauss is not None], "<i8").view(np.uint8),
            np.array([gauss or 0.0], "<f8").view(np.uint8),
        ]
    )
