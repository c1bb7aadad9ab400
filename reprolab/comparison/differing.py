"""Sentences about the tensor that differs first."""

from __future__ import annotations

from collections.abc import Mapping

from reprolab.comparison import phrasing
from reprolab.comparison.bits import Element
from reprolab.comparison.distances import ABSENT_A, ABSENT_B, BELOW, KINDS, NONFINITE
from reprolab.comparison.first import FirstDifference
from reprolab.vocabulary import LANES, STATE_STREAMS

Sides = tuple[str, str]


def what_differs(first: FirstDifference, sides: Sides) -> str:
    """Say which tensor and block differ; for a scalar, its values."""
    if first.tensor is None:
        return f"which tensor it is cannot be said: {first.why_no_element}"
    others = f"; {first.tensors} of {first.of_tensors} tensors differ" if first.tensors > 1 else ""
    if first.layout is not None:
        return f"the tensors are not the same ones: {first.layout}{others}"
    if first.values is not None:
        left, right = phrasing.pair(*first.values)
        return f"{first.tensor} is {left} in {sides[0]} and {right} in {sides[1]}{others}"
    if first.tensors == 1 and first.of_tensors > 1:
        which = f"of {first.of_tensors} tensors only {first.tensor} differs"
    elif first.tensors == 1:
        which = f"the tensor is {first.tensor}"
    else:
        which = f"{first.tensors} of {first.of_tensors} tensors differ, first {first.tensor}"
    return which + _block(first)


def size_of_it(first: FirstDifference, sides: Sides) -> str | None:
    """Say how far apart the tensors are, down to the bit where a checkpoint tells."""
    if first.values is not None or first.layout is not None or first.tensor is None:
        return None
    if first.stream == "rng":
        # The bytes of a generator's state are no quantity; a distance would say nothing.
        return None
    if first.element is not None:
        return _element(first, first.element)
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


def _element(first: FirstDifference, element: Element) -> str:
    left, right = phrasing.number(element.a), phrasing.number(element.b)
    index = list(element.index)
    values = f"{left} against {right}"
    bit = flipped_bit(first)
    digits = element.bits // 4
    if bit is not None:
        return (
            f"exactly one element differs, {index}: {values}, and in it one bit alone, bit {bit} "
            f"({element.part(bit)}; 0x{element.a_bits:0{digits}x} against "
            f"0x{element.b_bits:0{digits}x}): it looks like a flipped bit"
        )
    apart = f", {phrasing.count(element.ulp, 'ULP')} apart" if element.ulp is not None else ""
    where = " of that block" if first.blocks != 1 else ""
    if first.differing_elements == 1:
        return f"one element{where} differs, {index}: {values}{apart}"
    amount = phrasing.count(first.differing_elements or 0, "element")
    return f"{amount}{where} differ, the first at {index}: {values}{apart}"


def _distance(first: FirstDifference, sides: Sides) -> str:
    if first.kind == KINDS[NONFINITE] and first.moments is not None:
        a, b = (_nonfinite(side) for side in first.moments)
        return f"{sides[0]} holds {a} there, {sides[1]} {b}"
    if first.kind == KINDS[ABSENT_A]:
        return f"{sides[0]} has no such tensor at this step"
    if first.kind == KINDS[ABSENT_B]:
        return f"{sides[1]} has no such tensor at this step"
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
    parts = [
        phrasing.count(int(moments[name]), f"{word} element")
        for name, word in (("nan", "NaN"), ("inf", "infinite"))
        if moments[name]
    ]
    return " and ".join(parts) or "only finite elements"
