"""How far apart two sides are: a row for every tensor that differs, and sums over a stream.

Distances come from the sketches of whole tensors, so nothing but roll-ups is read. Replicas that
recorded the same digests are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reprolab.comparison.tracks import Segment, Track
from reprolab.kernels import Distance, Fingerprint, estimate
from reprolab.vocabulary import MOMENTS, Layout

_COUNT, _NAN, _INF, _SUMSQ = (MOMENTS.index(name) for name in ("count", "nan", "inf", "sumsq"))

APART, BELOW, NONFINITE, ABSENT_A, ABSENT_B, LAYOUT = range(6)
KINDS = (
    "apart",
    "below resolution",
    "non-finite",
    "absent in a",
    "absent in b",
    "layout",
)
"""How a tensor differs: by a measured distance; by less than the sketch resolves, so that the
distance is an upper bound; in the number of NaN or infinite elements; in being there at all; in
dtype or shape."""

_CELLS = 1 << 16
"""Rows of roll-ups held at once, about 25 MB a side."""


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """How far apart tensors are; all arrays are [tensors]."""

    kind: np.ndarray
    """Numbers of KINDS, int8; meaningless where ``differs`` is false."""
    differs: np.ndarray
    distance: np.ndarray
    error: np.ndarray
    """Standard error of the distance."""
    relative: np.ndarray
    """Distance over the larger of both norms; infinite where the kind is non-finite."""
    squared: np.ndarray
    """Estimate of the squared distance, or its bound."""
    squared_error: np.ndarray
    norm: np.ndarray
    """Squared norm, the larger of both."""


def apart(a: Fingerprint, b: Fingerprint) -> Apart:
    """Measure fingerprints against each other, row by row."""
    found: Distance = estimate(a, b)
    here, there = a.moments, b.moments
    kind = np.full(len(a), APART, np.int8)
    kind[found.below_resolution] = BELOW
    kind[(here[:, _NAN] != there[:, _NAN]) | (here[:, _INF] != there[:, _INF])] = NONFINITE
    kind[(here[:, _COUNT] == 0) & (there[:, _COUNT] > 0)] = ABSENT_A
    kind[(here[:, _COUNT] > 0) & (there[:, _COUNT] == 0)] = ABSENT_B
    squared = np.where(found.below_resolution, found.floor, found.squared)
    norm = np.maximum(here[:, _SUMSQ], there[:, _SUMSQ])
    with np.errstate(all="ignore"):
        distance = np.sqrt(squared)
        error = np.where(distance > 0, found.error / (2 * distance), 0.0)
        relative = np.where(squared > 0, distance / np.sqrt(norm), 0.0)
    relative[kind == NONFINITE] = np.inf
    return Apart(kind, ~found.same, distance, error, relative, squared, found.error, norm)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Some (step, rank) pairs of one stream that share their matched layouts.

    Cells of replicas with the same digests on both sides are one cell with several ranks.
    """

    stream: str
    segment: Segment
    steps: list[int]
    ranks: list[list[int]]
    apart: Apart
    """Rows are (cell, tensor)."""
    blocks: np.ndarray
    """Blocks of each tensor, int64 [tensors]."""
    differing: np.ndarray
    """Blocks that differ, int64 [cells, tensors]; -1 where the sides cut the tensor differently
    or the blocks are damaged."""


def cells(tracks: Sequence[Track]) -> Iterator[Cells]:
    """Measure every (step, rank) at which a stream differs.

    Parameters
    ----------
    tracks : sequence of Track
        Any streams and ranks.
    """
    wanted: dict[tuple[object, ...], list[int]] = {}
    first: dict[tuple[object, ...], tuple[Track, Segment, int]] = {}
    for track in tracks:
        differs = track.differs()
        digests = track.digests
        for segment in track.segments:
            for position in segment.positions[differs[segment.positions]].tolist():
                key = (
                    track.stream,
                    int(track.steps[position]),
                    int(digests[0][position]),
                    int(digests[1][position]),
                    *map(id, segment.layouts),
                )
                wanted.setdefault(key, []).append(track.rank)
                first.setdefault(key, (track, segment, position))
    groups: dict[tuple[int, int], list[tuple[Track, Segment, int, list[int]]]] = {}
    for key, (track, segment, position) in first.items():
        groups.setdefault((id(track), id(segment)), []).append(
            (track, segment, position, wanted[key])
        )
    for group in groups.values():
        track, segment = group[0][:2]
        batch = max(1, _CELLS // max(1, len(segment.match.tensors)))
        for start in range(0, len(group), batch):
            part = group[start : start + batch]
            yield from _measured(
                track, segment, {int(track.steps[entry[2]]): entry[3] for entry in part}
            )


def _measured(track: Track, segment: Segment, ranks: dict[int, list[int]]) -> Iterator[Cells]:
    steps = sorted(ranks)
    a, in_a = track.a.tensors(track.stream, steps)
    b, in_b = track.b.tensors(track.stream, steps)
    kept = [step for step in in_a if step in set(in_b)]
    if not kept:
        return
    sides = [
        _chosen(side, read, kept, tensors, len(layout.tensors))
        for side, read, tensors, layout in zip(
            (a, b),
            (in_a, in_b),
            (segment.match.in_a, segment.match.in_b),
            segment.layouts,
            strict=True,
        )
    ]
    found = apart(*sides)
    shape = len(kept), len(segment.match.tensors)
    blocks, differing = _differing_blocks(track, segment, kept, found.differs.reshape(shape))
    named = [ranks[step] for step in kept]
    yield Cells(track.stream, segment, kept, named, found, blocks, differing)


def _differing_blocks(
    track: Track, segment: Segment, steps: list[int], differs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    a, b = segment.layouts
    blocks, others = (
        np.array([spec.blocks(layout.block_bytes) for spec in segment.match.tensors], np.int64)
        for layout in (a, b)
    )
    found = np.where((blocks == 1) & (others == 1), differs, -differs.astype(np.int64))
    # Only tensors of several blocks need their blocks looked at.
    many = np.flatnonzero(differs.any(axis=0) & (blocks > 1) & (a.block_bytes == b.block_bytes))
    if not len(many):
        return blocks, found
    rows = [
        np.concatenate([np.arange(*_place(layout, match, index)) for index in many.tolist()])
        for layout, match in ((a, segment.match.in_a), (b, segment.match.in_b))
    ]
    starts = np.concatenate([[0], np.cumsum(blocks[many])[:-1]])
    for cell, step in enumerate(steps):
        two = [side.blocks(track.stream, step) for side in (track.a, track.b)]
        if two[0] is not None and two[1] is not None:
            unequal = two[0].digest[rows[0]] != two[1].digest[rows[1]]
            found[cell, many] = np.add.reduceat(unequal, starts, dtype=np.int64)
    return blocks, found


def _place(layout: Layout, rows: slice | np.ndarray, tensor: int) -> tuple[int, int]:
    at = tensor if isinstance(rows, slice) else int(rows[tensor])
    return layout.starts[at], layout.starts[at + 1]


def _chosen(
    side: Fingerprint, read: list[int], kept: list[int], tensors: slice | np.ndarray, width: int
) -> Fingerprint:
    """Rows of the steps that both sides could read and of the tensors that match."""
    rows = np.arange(len(side)).reshape(len(read), width)[np.searchsorted(read, kept)][:, tensors]
    rows = rows.ravel()
    return Fingerprint(side.digest[rows], side.moments[rows], side.sketch[rows])
