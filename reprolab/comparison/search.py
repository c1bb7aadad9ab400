"""The first step and stream at which anything differs.

A difference in the parameters or in the optimizer's state stays, so halving the steps finds one
of them quickly, and with it a bound: the first difference of all is not later. It may be earlier
and gone again, though, in any stream, so everything up to the bound is scanned, by digests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reprolab.comparison.tracks import PERSISTING, Track
from reprolab.vocabulary import STREAMS


def halve(differs: Callable[[int], bool], count: int) -> int | None:
    """Find a position that differs, the first one if a difference stays once it is there.

    Parameters
    ----------
    differs : callable
        Whether a position differs; called about ``log2(count)`` times.
    count : int
        Number of positions.

    Returns
    -------
    int or None
        A position that differs and whose predecessor does not (or that is 0); None if the last
        one does not differ.

    Examples
    --------
    >>> halve(lambda position: position >= 13, 1000)
    13
    """
    if count == 0 or not differs(count - 1):
        return None
    low, high = -1, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        if differs(middle):
            high = middle
        else:
            low = middle
    return high


def bound(tracks: Sequence[Track]) -> int | None:
    """A step at which something certainly differs, by halving; None where that finds nothing."""
    found = None
    seen = set()
    for track in tracks:
        if track.stream not in PERSISTING or track.stream in seen:
            continue
        # Replicas tell the same; one of them is enough for a bound.
        seen.add(track.stream)
        steps = track.steps if found is None else track.steps[track.steps <= found]
        position = halve(track.differs_at, len(steps))
        if position is not None:
            found = int(steps[position])
    return found


def first(tracks: Sequence[Track]) -> tuple[int, str, list[Track]] | None:
    """Find the first step, and the first stream within it, at which any rank differs.

    Returns
    -------
    tuple of int, str, list of Track, or None
        Step, stream, and the tracks of all ranks that differ there, by rank; None where nothing
        differs.
    """
    limit = bound(tracks)
    earliest: dict[Track, int] = {}
    for track in tracks:
        stop = None if limit is None else int(np.searchsorted(track.steps, limit, side="right"))
        positions = np.flatnonzero(track.differs(stop))
        if len(positions):
            earliest[track] = int(track.steps[positions[0]])
            limit = earliest[track] if limit is None else min(limit, earliest[track])
    if not earliest:
        return None
    step, place = min((at, STREAMS.index(track.stream)) for track, at in earliest.items())
    stream = STREAMS[place]
    there = [track for track, at in earliest.items() if at == step and track.stream == stream]
    return step, stream, sorted(there, key=lambda track: track.rank)
