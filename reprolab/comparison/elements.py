"""The exact element that differs: from the moments of a scalar, or from two checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import numpy as np

from reprolab.comparison import phrasing
from reprolab.comparison.bits import Element
from reprolab.comparison.recordings import Recording
from reprolab.errors import CheckpointError, DamagedData
from reprolab.kernels import difference
from reprolab.vocabulary import ITEMSIZE, MOMENTS, STATE_STREAMS, TensorSpec

_NAN, _INF, _MIN = (MOMENTS.index(name) for name in ("nan", "inf", "min"))


@dataclass(frozen=True, slots=True)
class Found:
    """What two checkpoints say about a block."""

    element: Element | None
    """The first element that differs."""
    differing: int | None
    """Elements that differ in the block."""
    why_not: str | None
    """Why there is no element."""


def single_value(moments: np.ndarray) -> float:
    """Value of a tensor of one element, from its moments; an infinity's sign is not known."""
    if moments[_NAN]:
        return nan
    return inf if moments[_INF] else float(moments[_MIN])


def single_element(spec: TensorSpec, a: float, b: float) -> Element | None:
    """The element of a tensor of one element, where both values determine its bits."""
    if a == b or not np.isfinite([a, b]).all():
        return None
    dtype = np.dtype(spec.dtype)
    if abs(a) > 2**53 or abs(b) > 2**53:
        # An integer that large may have been rounded on its way into the moments.
        return None
    two = np.array([a, b]).astype(dtype)
    return Element.of((0,) * len(spec.shape), spec.dtype, two[0], two[1])


def element_in_checkpoints(
    a: Recording,
    b: Recording,
    stream: str,
    step: int,
    spec: TensorSpec,
    block: int | None,
    block_bytes: int,
) -> Found:
    """Read one block on each side, where both hold a checkpoint of the step, and compare.

    Parameters
    ----------
    a, b : Recording
        The rank on either side.
    stream, step, spec
        The tensor.
    block : int or None
        The block; None where the sides cut the tensor into other blocks.
    block_bytes : int
        Size of a block.
    """
    if stream not in STATE_STREAMS:
        return _no(f"checkpoints hold the state at the start of a step, not {stream}")
    lacking = [side for side in (a, b) if step not in side.run.checkpoints]
    if lacking:
        runs = {side.run.name: side.run.checkpoints for side in lacking}
        held = "; ".join(
            f"{name} has {'those of steps ' + phrasing.spans(steps) if steps else 'none'}"
            for name, steps in runs.items()
        )
        return _no(
            f"the element can be read only where both hold a checkpoint of step {step}: {held}"
        )
    if block is None:
        return _no("the two runs cut the tensor into blocks of different sizes")
    try:
        two = [
            side.run.checkpoint(step).block(stream, spec.name, block, rank=side.rank)
            for side in (a, b)
        ]
    except (CheckpointError, DamagedData) as error:
        return _no(f"the checkpoint could not be read: {error}")
    if two[0].shape != two[1].shape or two[0].dtype != two[1].dtype:
        return _no("the checkpoints hold the tensor with other shapes or dtypes")
    found = difference(*two)
    if found.first is None:
        return _no(
            "the checkpoints hold the same bytes there although the fingerprints differ: "
            "the tensor changed between being fingerprinted and being saved"
        )
    flat = block * (block_bytes // ITEMSIZE[spec.dtype]) + found.first
    index = tuple(int(place) for place in np.unravel_index(flat, spec.shape))
    element = Element.of(index, spec.dtype, two[0][found.first], two[1][found.first])
    return Found(element, found.differing, None)


def _no(why: str) -> Found:
    return Found(None, None, why)
