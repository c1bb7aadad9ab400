"""Every (step, rank) at which a stream differs, measured.

Replicas that recorded the same digests on both sides are read and measured once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm.auto import tqdm

from reprolab.comparison.distances import Apart, apart, by_blocks, narrow_floats
from reprolab.comparison.recordings import stacked
from reprolab.comparison.tracks import Segment, Track
from reprolab.kernels import Distance, Fingerprint, estimate
from reprolab.vocabulary import Layout

_CELLS = 1 << 16
"""Rows of blocks held at once, about 13 MB a side."""


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
    with tqdm(total=len(first), desc="measuring", unit="step", delay=1, leave=False) as bar:
        for group in groups.values():
            track, segment = group[0][:2]
            batch = max(1, _CELLS // max(1, segment.layouts[0].rows))
            for start in range(0, len(group), batch):
                part = group[start : start + batch]
                ranks = {int(track.steps[entry[2]]): entry[3] for entry in part}
                yield from _measured(track, segment, ranks)
                bar.update(len(part))


def _measured(track: Track, segment: Segment, ranks: dict[int, list[int]]) -> Iterator[Cells]:
    steps = sorted(ranks)
    a, in_a = track.a.tensors(track.stream, steps)
    b, in_b = track.b.tensors(track.stream, steps)
    kept = [step for step in in_a if step in set(in_b)]
    if not kept or not segment.match.tensors:
        return
    a = _chosen(a, in_a, kept, segment.match.in_a, len(segment.layouts[0].tensors))
    b = _chosen(b, in_b, kept, segment.match.in_b, len(segment.layouts[1].tensors))
    narrow = np.tile(narrow_floats(segment.match.tensors), len(kept))
    whole = estimate(a, b, narrow=narrow)
    distance, differing = _by_blocks(track, segment, kept, whole, narrow)
    named = [ranks[step] for step in kept]
    blocks = _blocks(segment)[0]
    found = apart(a, b, distance)
    yield Cells(track.stream, segment, kept, named, found, blocks, differing)


def _by_blocks(
    track: Track, segment: Segment, steps: list[int], whole: Distance, narrow: np.ndarray
) -> tuple[Distance, np.ndarray]:
    """Distances by blocks where a tensor has several, and how many of them differ."""
    width = len(segment.match.tensors)
    differs = ~whole.same.reshape(len(steps), width)
    blocks, others = _blocks(segment)
    found = np.where((blocks == 1) & (others == 1), differs, -differs.astype(np.int64))
    a, b = segment.layouts
    if a.block_bytes != b.block_bytes:
        return whole, found
    cells, tensors, ours, theirs = [], [], [], []
    for cell, step in enumerate(steps):
        many = np.flatnonzero(differs[cell] & (blocks > 1))
        if not len(many):
            continue
        two = [side.blocks(track.stream, step) for side in (track.a, track.b)]
        if two[0] is not None and two[1] is not None:
            cells.append(np.full(len(many), cell))
            tensors.append(many)
            ours.append(_picked(two[0], a, segment.match.in_a, many))
            theirs.append(_picked(two[1], b, segment.match.in_b, many))
    if not cells:
        return whole, found
    row, tensor = np.concatenate(cells), np.concatenate(tensors)
    starts = np.cumsum(blocks[tensor]) - blocks[tensor]
    rows = row * width + tensor
    measured, amounts = by_blocks(
        whole, rows, starts, stacked(ours), stacked(theirs), np.repeat(narrow[rows], blocks[tensor])
    )
    found[row, tensor] = amounts
    return measured, found


def _blocks(segment: Segment) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of each matched tensor on either side, int64 [tensors]."""
    a, b = (
        np.array([spec.blocks(layout.block_bytes) for spec in segment.match.tensors], np.int64)
        for layout in segment.layouts
    )
    return a, b


def _picked(
    blocks: Fingerprint, layout: Layout, rows: slice | np.ndarray, tensors: np.ndarray
) -> Fingerprint:
    """Block rows of some matched tensors."""
    places = tensors if isinstance(rows, slice) else rows[tensors]
    starts = np.asarray(layout.starts)
    lengths = starts[places + 1] - starts[places]
    before = np.cumsum(lengths) - lengths
    index = np.repeat(starts[places] - before, lengths) + np.arange(lengths.sum())
    return Fingerprint(blocks.digest[index], blocks.moments[index], blocks.sketch[index])


def _chosen(
    side: Fingerprint, read: list[int], kept: list[int], tensors: slice | np.ndarray, width: int
) -> Fingerprint:
    """Rows of the steps that both sides could read and of the tensors that match."""
    rows = np.arange(len(side)).reshape(len(read), width)[np.searchsorted(read, kept)][:, tensors]
    rows = rows.ravel()
    return Fingerprint(side.digest[rows], side.moments[rows], side.sketch[rows])
