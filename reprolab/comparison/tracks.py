"""One stream of one rank on both sides, over the steps that both recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.comparison.matching import LayoutDifference, Match, match
from reprolab.comparison.recordings import Recording
from reprolab.vocabulary import Layout, TensorSpec

PERSISTING = ("params", "optimizer")
"""Streams in which a difference, once there, hardly ever goes away again."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Steps of a track at which the layouts are the same ones."""

    match: Match
    layouts: tuple[Layout, Layout]
    positions: np.ndarray
    """Positions in the track's steps, int64, ascending."""
    odd: dict[str, tuple[TensorSpec | None, TensorSpec | None]]
    """Tensors that only now are not the same on both sides: a difference in itself."""


class Track:
    """Where one stream of one rank differs between the sides.

    Parameters
    ----------
    stream : str
        The stream.
    rank : int
        The rank by which this track is spoken of.
    a, b : Recording
        The rank's records on either side.
    steps : ndarray, int64 [steps]
        The steps that both sides recorded and that are to be compared.
    """

    def __init__(
        self, stream: str, rank: int, a: Recording, b: Recording, steps: np.ndarray
    ) -> None:
        self.stream = stream
        self.rank = rank
        self.a = a
        self.b = b
        self.steps = steps
        self._excused: dict[str, tuple[TensorSpec | None, TensorSpec | None]] = {}
        self._idle: frozenset[str] = frozenset()
        self._segments: list[Segment] | None = None
        self._known: dict[int, bool] = {}
        self._digests: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def digests(self) -> tuple[np.ndarray, np.ndarray]:
        """Digests of the whole stream in a and in b, uint64 [steps]."""
        if self._digests is None:
            self._digests = tuple(
                side.digests(self.stream, self.steps) for side in (self.a, self.b)
            )  # type: ignore[assignment]
        return self._digests  # type: ignore[return-value]

    def excuse(self) -> list[LayoutDifference]:
        """Leave out the tensors that are different ones from the first step on, and return them.

        They tell that the models differ, not where the trainings part.
        """
        if not len(self.steps):
            return []
        found = match(*self._layouts(0))
        self._excused = found.unmatched
        self._segments = None
        return [LayoutDifference(self.stream, name, *two) for name, two in found.unmatched.items()]

    def excuse_idle(self) -> frozenset[str]:
        """Leave out the tensors that differ but never change at any step, and return their names.

        A random generator that nothing draws from may stand anywhere without having a say. With
        one step recorded nobody can tell, and nothing is left out.
        """
        if len(self.steps) < 2 or len(self.segments) > 1 or not self.differs_at(0):
            return self._idle
        found = self.segments[0].match
        digests = [
            [side.tensor_digests(self.stream, int(step)) for step in self.steps]
            for side in (self.a, self.b)
        ]
        if any(row is None for side in digests for row in side):
            return self._idle
        a, b = (
            np.stack(side)[:, rows]  # type: ignore[arg-type]
            for side, rows in zip(digests, (found.in_a, found.in_b), strict=True)
        )
        idle = (a[0] != b[0]) & (a == a[0]).all(axis=0) & (b == b[0]).all(axis=0)
        self._idle = frozenset(found.tensors[index].name for index in np.flatnonzero(idle))
        self._segments = None
        return self._idle

    def narrowed(self, steps: np.ndarray) -> Track:
        """The same track at some of its steps only."""
        found = Track(self.stream, self.rank, self.a, self.b, steps)
        found._excused = self._excused
        found._idle = self._idle
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, at all steps, whose fingerprints are compared."""
        return sum(
            sum(tensor.nbytes for tensor in segment.match.tensors) * len(segment.positions)
            for segment in self.segments
        )

    @property
    def segments(self) -> list[Segment]:
        """All steps, grouped by layouts."""
        if self._segments is None:
            groups: dict[tuple[int, int], list[int]] = {}
            layouts: dict[tuple[int, int], tuple[Layout, Layout]] = {}
            for position in range(len(self.steps)):
                two = self._layouts(position)
                key = (id(two[0]), id(two[1]))
                layouts[key] = two
                groups.setdefault(key, []).append(position)
            self._segments = [
                self._segment(layouts[key], np.array(positions, np.int64))
                for key, positions in groups.items()
            ]
        return self._segments

    def segment(self, position: int) -> Segment:
        """The segment of one position."""
        for segment in self.segments:
            if position in segment.positions:
                return segment
        raise IndexError(position)

    def differs(self, stop: int | None = None) -> np.ndarray:
        """Where the sides differ, bool [steps], for the positions before `stop`.

        Positions that cannot be read count as not different; they are reported as damage.
        """
        stop = len(self.steps) if stop is None else stop
        found = np.zeros(stop, bool)
        for segment in self.segments:
            positions = segment.positions[segment.positions < stop]
            if segment.match.identical:
                a, b = self.digests
                found[positions] = a[positions] != b[positions]
            elif segment.odd:
                found[positions] = True
            else:
                found[positions] = [self._tensors_differ(segment, p) for p in positions.tolist()]
        return found

    def differs_at(self, position: int) -> bool:
        """Whether the sides differ at one position."""
        segment = self.segment(position)
        if segment.match.identical:
            a, b = self.digests
            return bool(a[position] != b[position])
        return bool(segment.odd) or self._tensors_differ(segment, position)

    def _tensors_differ(self, segment: Segment, position: int) -> bool:
        if position not in self._known:
            step = int(self.steps[position])
            a = self.a.tensor_digests(self.stream, step)
            b = self.b.tensor_digests(self.stream, step)
            self._known[position] = (
                a is not None
                and b is not None
                and bool((a[segment.match.in_a] != b[segment.match.in_b]).any())
            )
        return self._known[position]

    def _layouts(self, position: int) -> tuple[Layout, Layout]:
        step = int(self.steps[position])
        return self.a.layout(self.stream, step), self.b.layout(self.stream, step)

    def _segment(self, layouts: tuple[Layout, Layout], positions: np.ndarray) -> Segment:
        found = match(*layouts)
        if self._idle:
            found = found.without(self._idle)
        odd = {name: two for name, two in found.unmatched.items() if self._excused.get(name) != two}
        return Segment(found, layouts, positions, odd)
