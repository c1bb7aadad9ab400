"""The first difference: which tensor, which block, and which element if a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprolab.comparison.bits import Element, plain
from reprolab.comparison.distances import KINDS, LAYOUT, apart, narrow_floats
from reprolab.comparison.elements import element_in_checkpoints, single_element, single_value
from reprolab.comparison.matching import LayoutDifference
from reprolab.comparison.tracks import Segment, Track
from reprolab.kernels import Fingerprint, estimate
from reprolab.vocabulary import MOMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where two sides part, in the order step, stream, rank, tensor, block."""

    step: int
    stream: str
    rank: int
    """The lowest rank that differs there."""
    ranks: tuple[int, ...]
    """All ranks that differ in this stream at this step."""
    tensor: str | None = None
    """None where damage hides it."""
    tensors: int = 0
    """Tensors of the stream that differ on this rank at this step."""
    of_tensors: int = 0
    """Tensors of the stream."""
    kind: str | None = None
    """How the tensor differs, one of :data:`reprolab.comparison.distances.KINDS`."""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    layout: LayoutDifference | None = None
    """Both shapes and dtypes where these differ."""
    distance: float | None = None
    error: float | None = None
    """Standard error of the distance."""
    relative: float | None = None
    block: int | None = None
    """First block that differs; None where the sides cut the tensor into other blocks."""
    differing_blocks: int | None = None
    blocks: int | None = None
    """Blocks of the tensor."""
    lanes: int | None = None
    """Lanes of the first block's sketch that differ at all, of 16. One element sits in one lane."""
    moments: tuple[Mapping[str, float], Mapping[str, float]] | None = None
    """Moments of the whole tensor in a and in b."""
    values: tuple[float, float] | None = None
    """The value in a and in b, of a tensor of one element."""
    element: Element | None = None
    differing_elements: int | None = None
    """Elements that differ in the block, where a checkpoint was read."""
    why_no_element: str | None = None
    where: str = ""
    """In which stage of the step the sides part, in words."""

    @property
    def is_setting(self) -> bool:
        """Whether it is a hyperparameter of the optimizer, which no stage of a step computes."""
        return self.stream == "optimizer" and "param_groups." in (self.tensor or "")

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; non-finite numbers become text."""
        return {
            "step": self.step,
            "stream": self.stream,
            "rank": self.rank,
            "ranks": list(self.ranks),
            "where": self.where,
            "tensor": self.tensor,
            "tensors": self.tensors,
            "of_tensors": self.of_tensors,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
            "layout": str(self.layout) if self.layout else None,
            "distance": plain(self.distance),
            "error": plain(self.error),
            "relative": plain(self.relative),
            "block": self.block,
            "differing_blocks": self.differing_blocks,
            "blocks": self.blocks,
            "lanes": self.lanes,
            "values": [plain(value) for value in self.values] if self.values else None,
            "moments": [
                {name: plain(value) for name, value in side.items()} for side in self.moments
            ]
            if self.moments
            else None,
            "element": self.element.to_dict() if self.element else None,
            "differing_elements": self.differing_elements,
            "why_no_element": self.why_no_element,
        }


def describe(step: int, stream: str, tracks: Sequence[Track]) -> FirstDifference:
    """Narrow a first difference down to tensor, block and element.

    Parameters
    ----------
    step, stream
        Where the sides part.
    tracks : sequence of Track
        The tracks of the ranks that differ there; the first one's tensors are read.
    """
    track = tracks[0]
    ranks = tuple(entry.rank for entry in tracks)
    found = FirstDifference(step=step, stream=stream, rank=track.rank, ranks=ranks)
    segment = track.segment(int(np.searchsorted(track.steps, step)))
    width = len(segment.match.tensors) + len(segment.odd)
    if segment.odd:
        name, two = next(iter(segment.odd.items()))
        return replace(
            found,
            tensor=name,
            tensors=len(segment.odd),
            of_tensors=width,
            kind=KINDS[LAYOUT],
            layout=LayoutDifference(stream, name, *two),
            why_no_element="the tensors cannot be compared element by element",
        )
    rolled = [side.tensors(stream, [step]) for side in (track.a, track.b)]
    if not all(read for _, read in rolled):
        return replace(found, of_tensors=width, why_no_element="the records there are damaged")
    a, b = (
        _picked(side, rows)
        for (side, _), rows in zip(rolled, (segment.match.in_a, segment.match.in_b), strict=True)
    )
    tensors = np.flatnonzero(a.digest != b.digest)
    if not len(tensors):
        # The digest of the stream says otherwise, so one of the two is damaged.
        return replace(found, of_tensors=width, why_no_element="the records contradict themselves")
    found = replace(found, tensors=len(tensors), of_tensors=width)
    return _tensor(found, track, segment, int(tensors[0]), a, b)


def _tensor(
    found: FirstDifference,
    track: Track,
    segment: Segment,
    tensor: int,
    a: Fingerprint,
    b: Fingerprint,
) -> FirstDifference:
    spec, row = segment.match.tensors[tensor], slice(tensor, tensor + 1)
    two = blocks(track, segment, found.step, tensor)
    narrow = narrow_floats([spec])[0]
    here, there = a.rows(row), b.rows(row)
    measured = estimate(*(two or (here, there)), narrow=narrow).total()
    far = apart(here, there, measured)
    moments = [dict(zip(MOMENTS, side.moments[tensor].tolist(), strict=True)) for side in (a, b)]
    found = replace(
        found,
        tensor=spec.name,
        dtype=spec.dtype,
        shape=spec.shape,
        kind=KINDS[far.kind[0]],
        distance=float(far.distance[0]),
        error=float(far.error[0]),
        relative=float(far.relative[0]),
        moments=(moments[0], moments[1]),
        **(_block(*two) if two else {}),
    )
    if spec.size == 1 and all(side["count"] for side in moments):
        values = single_value(a.moments[tensor]), single_value(b.moments[tensor])
        element = single_element(spec, *values)
        why = None if element else "the moments of a scalar do not tell these bits"
        return replace(found, values=values, element=element, why_no_element=why)
    read = element_in_checkpoints(
        track.a,
        track.b,
        found.stream,
        found.step,
        spec,
        found.block,
        segment.layouts[0].block_bytes,
    )
    return replace(
        found,
        element=read.element,
        differing_elements=read.differing,
        why_no_element=read.why_not,
    )


def _block(a: Fingerprint, b: Fingerprint) -> dict[str, Any]:
    """What the blocks of a tensor say: the first that differs, how many, how concentrated."""
    differing = np.flatnonzero(a.digest != b.digest)
    if not len(differing):
        return {"blocks": len(a)}
    block = int(differing[0])
    lanes = int(np.count_nonzero(a.sketch[block] != b.sketch[block]))
    return {
        "block": block,
        "blocks": len(a),
        "differing_blocks": len(differing),
        "lanes": lanes,
    }


def blocks(
    track: Track, segment: Segment, step: int, tensor: int
) -> tuple[Fingerprint, Fingerprint] | None:
    """Block rows of one matched tensor on both sides.

    Returns
    -------
    tuple of Fingerprint, or None
        None where the block sizes differ (unless one block holds all) or the rows are damaged.
    """
    sizes = {layout.block_bytes for layout in segment.layouts}
    spec = segment.match.tensors[tensor]
    if len(sizes) > 1 and any(spec.blocks(size) != 1 for size in sizes):
        return None
    found = []
    for side, layout, rows in zip(
        (track.a, track.b),
        segment.layouts,
        (segment.match.in_a, segment.match.in_b),
        strict=True,
    ):
        whole = side.blocks(track.stream, step)
        if whole is None:
            return None
        index = tensor if isinstance(rows, slice) else int(rows[tensor])
        found.append(whole.rows(layout.rows_of(index)))
    return found[0], found[1]


def _picked(side: Fingerprint, rows: slice | np.ndarray) -> Fingerprint:
    return Fingerprint(side.digest[rows], side.moments[rows], side.sketch[rows])


def scalars(
    tracks: Sequence[Track], first: FirstDifference
) -> Iterator[tuple[str, str, float, float]]:
    """Other tensors of one element that differ in the optimizer's state at the same step and rank.

    Yields
    ------
    tuple
        Stream, tensor, value in a, value in b.
    """
    for track in tracks:
        at = np.flatnonzero(track.steps == first.step)
        if (track.stream, track.rank) != ("optimizer", first.rank) or not len(at):
            continue
        segment = track.segment(int(at[0]))
        rolled = [side.tensors(track.stream, [first.step]) for side in (track.a, track.b)]
        if not all(read for _, read in rolled):
            continue
        a, b = (
            _picked(side, rows)
            for (side, _), rows in zip(
                rolled, (segment.match.in_a, segment.match.in_b), strict=True
            )
        )
        for index in np.flatnonzero(a.digest != b.digest).tolist():
            spec = segment.match.tensors[index]
            if spec.size == 1 and (track.stream, spec.name) != (first.stream, first.tensor):
                values = single_value(a.moments[index]), single_value(b.moments[index])
                yield track.stream, spec.name, *values
