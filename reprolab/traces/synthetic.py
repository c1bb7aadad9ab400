"""Traces made to measure: data-parallel training with known noise and known stragglers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from reprolab.tables.operations import BARRIER, OPERATIONS, WORK

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Draws factors about 1, one a rank and step."""


def normal(sigma: float = 0.02) -> Noise:
    """Noise with light tails."""
    return lambda rng, shape: 1 + sigma * rng.standard_normal(shape)


def student(sigma: float = 0.01, freedom: float = 3.0) -> Noise:
    """Noise with heavy tails on both sides, never below half."""
    return lambda rng, shape: np.maximum(1 + sigma * rng.standard_t(freedom, shape), 0.5)


def lognormal(sigma: float = 0.05) -> Noise:
    """Noise with a long right tail: a rank is often a little fast and now and then quite slow."""
    return lambda rng, shape: np.exp(sigma * (rng.lognormal(0.0, 1.0, shape) - 1.0) / 2)


def data_parallel(
    ranks: int = 8,
    steps: int = 100,
    *,
    noise: Noise | None = None,
    slow: np.ndarray | None = None,
    work: np.ndarray | None = None,
    seed: int = 0,
) -> pl.DataFrame:
    """Operations of a data-parallel training: data, forward, backward, reduce, optimizer.

    Parameters
    ----------
    ranks, steps : int
        Size of the trace.
    noise : callable, optional
        Of forward and backward; 2 % normal when omitted.
    slow : float64 [ranks, steps], optional
        Factors on forward and backward.
    work : float64 [ranks, steps], optional
        Tokens of each rank's batch; forward and backward are proportional to them, and they are
        recorded. Without, all batches are equal and nothing is recorded.
    seed : int
        Of the noise.

    Returns
    -------
    polars.DataFrame
        With the columns of ``OPERATIONS``.
    """
    rng = np.random.default_rng(seed)
    draw = noise or normal()
    shape = (ranks, steps)
    size = np.ones(shape) if work is None else work / work.mean()
    factor = size * (1.0 if slow is None else slow)
    phases = {
        "data": 0.004 * normal(0.1)(rng, shape),
        "forward": 0.060 * factor * draw(rng, shape),
        "backward": 0.120 * factor * draw(rng, shape),
    }
    optimizer = 0.010 * normal(0.01)(rng, shape)
    transfer = 0.006 * normal(0.05)(rng, (1, steps))
    frames, clock = [], np.zeros(ranks)
    starts = {name: np.empty(shape) for name in (*phases, "reduce", "optimizer")}
    lasts = {**phases, "reduce": np.empty(shape), "optimizer": optimizer}
    for step in range(steps):
        at = clock.copy()
        for name, seconds in phases.items():
            starts[name][:, step] = at
            at += seconds[:, step]
        end = at.max() + transfer[0, step]
        starts["reduce"][:, step], lasts["reduce"][:, step] = at, end - at
        starts["optimizer"][:, step] = end
        clock = end + optimizer[:, step]
    rank, number = (grid.ravel() for grid in np.indices(shape))
    for name in starts:
        met = name == "reduce"
        tokens = None if work is None or name not in ("forward", "backward") else work.ravel()
        frames.append(
            pl.DataFrame(
                {
                    "rank": rank,
                    "step": number,
                    "operation": name,
                    "role": BARRIER if met else WORK,
                    "start": starts[name].ravel(),
                    "duration": lasts[name].ravel(),
                    "sequence": 0,
                    "dp": rank,
                    "stage": 0,
                    "part": None,
                    "microbatch": None,
                    "group": "reduce #0" if met else None,
                    "tokens": tokens,
                    "bytes": None,
                }
            ).cast(OPERATIONS)
        )
    return pl.concat(frames).sort("rank", "step", "start")
