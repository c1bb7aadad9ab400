"""Sentences about the tensor that differs first."""

from __future__ import annotations

from collections.abc import Mapping

from reprolab.comparison import phrasing
from reprolab.comparison.bits import Element
from reprolab.comparison.distances import ABSENT_A, ABSENT_B, BELOW, KINDS, NONFINITE
from reprolab.comparison.first import FirstDifference
from reprolab.vocabulary import LANES, STATE_STREAMS

Sides = tuple[str, str]
"""What a and b are called: runs, or ranks of one run."""

_FEW_ULPS = 1 << 20
"""More units in the last place than this are no help to a reader."""


def what_differs(first: FirstDifference, sides: Sides) -> str:
    """Say which tensor and block differ; for a scalar, its values."""
    if first.tensor is None:
        return f"which tensor it is cannot be said: {first.why_no_element}"
    noun = "generator" if first.stream == "rng" else "tensor"
    others = f"; {first.tensors} of {first.of_tensors} {noun}s differ" if first.tensors > 1 else ""
    if first.layout is not None:
        return f"the tensors are not the same ones: {first.layout}{others}"
    if first.values is not None:
        left, right = _placed(phrasing.pair(*first.values), sides)
        return f"the value of {first.tensor} is {left} and {right}{others}"
    if first.tensors == 1 and first.of_tensors > 1:
        which = f"of {first.of_tensors} {noun}s only {first.tensor} differs"
    elif first.tensors == 1:
        which = f"the {noun} is {first.tensor}"
    else:
        which = f"{first.tensors} of {first.of_tensors} {noun}s differ, first {first.tensor}"
    return which + _block(first)


def size_of_it(first: FirstDifference, sides: Sides) -> str | None:
    """Say how far apart the tensors are, down to the bit where a checkpoint tells."""
    if first.values is not None or first.layout is not None or first.tensor is None:
        return None
    if first.stream == "rng":
        return None
    if first.element is not None:
        return _element(first, first.element, sides)
    if "float" not in (first.dtype or ""):
        # Tokens and indices are names, not quantities: a distance would say nothing.
        return None
    text = _distance(first, sides)
    if first.lanes == 1 and first.differing_blocks == 1:
        text += (
            f"; it sits in one of the {LANES} lanes of the block's sketch, as the difference of a "
            "single element does"
        )
    if first.stream in STATE_STREAMS and first.why_no_element:
        text += f"; {first.why_no_element}"
    return text


def flipped_bit(first: FirstDifference) -> int | None:
    """The bit, where a single bit of a single element is all that differs."""
    alone = first.tensors == 1 and first.differing_blocks == 1 and first.differing_elements == 1
    if not alone or first.element is None or len(first.element.flipped) != 1:
        return None
    return first.element.flipped[0]


def _block(first: FirstDifference) -> str:
    if first.block is None or first.blocks == 1:
        return ""
    if first.differing_blocks == 1:
        return f", in block {first.block} of {first.blocks} alone"
    return f", in {first.differing_blocks} of {first.blocks} blocks from block {first.block} on"


def _element(first: FirstDifference, element: Element, sides: Sides) -> str:
    left, right = _placed(element.texts, sides)
    values = f"{left}, {right}"
    index = list(element.index)
    bit = flipped_bit(first)
    digits = element.bits // 4
    if bit is not None:
        bits = f"0x{element.a_bits:0{digits}x}, 0x{element.b_bits:0{digits}x}"
        looks = (
            "the lowest one, which rounding may change as well"
            if bit == 0
            else f"{element.part(bit)}, {bits}; it looks like a flipped bit"
        )
        return (
            f"exactly one element differs, {index}: {values}, and in it bit {bit} alone ({looks})"
        )
    apart = ""
    if element.ulp is not None and element.ulp <= _FEW_ULPS:
        apart = f" ({phrasing.count(element.ulp, 'ULP')} apart)"
    where = " of that block" if first.blocks != 1 else ""
    if first.differing_elements == 1:
        return f"one element{where} differs, {index}: {values}{apart}"
    amount = phrasing.count(first.differing_elements or 0, "element")
    return f"{amount}{where} differ, the first at {index}: {values}{apart}"


def _placed(texts: tuple[str, str], sides: Sides) -> tuple[str, str]:
    """Put the sides behind two values."""
    left, right = (
        f"{text} {'on' if side.startswith('rank ') else 'in'} {side}"
        for text, side in zip(texts, sides, strict=True)
    )
    return left, right


def _distance(first: FirstDifference, sides: Sides) -> str:
    if first.kind == KINDS[NONFINITE] and first.moments is not None:
        a, b = (_nonfinite(side) for side in first.moments)
        return f"of its elements, {a} in {sides[0]} and {b} in {sides[1]} are NaN or infinite"
    if first.kind in (KINDS[ABSENT_A], KINDS[ABSENT_B]):
        side = sides[0] if first.kind == KINDS[ABSENT_A] else sides[1]
        return f"it is not there in {side} at this step"
    assert first.distance is not None  # noqa: S101
    assert first.relative is not None  # noqa: S101
    relative = phrasing.rough(first.relative)
    if first.kind == KINDS[BELOW]:
        bound = phrasing.rough(first.distance)
        return (
            f"the bits differ by less than the sketch resolves (a distance below {bound}, "
            f"relative {relative})"
        )
    error = phrasing.rough(first.error or 0.0)
    return (
        f"the two are {phrasing.rough(first.distance)} ± {error} apart in the L2 norm "
        f"(relative {relative})"
    )


def _nonfinite(moments: Mapping[str, float]) -> str:
    found = int(moments["nan"] + moments["inf"])
    return f"{found:,}" if found else "none"
