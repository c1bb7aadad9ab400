"""What of two sides can be compared: which ranks, streams and steps, and what cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from reprolab.comparison import phrasing
from reprolab.comparison.matching import LayoutDifference
from reprolab.comparison.recordings import Context, Recording
from reprolab.comparison.tracks import Track
from reprolab.errors import DamagedData, NothingToCompare
from reprolab.store import Run
from reprolab.vocabulary import STREAMS

REPLICATED = ("params", "optimizer", "grads", "grads_used")
"""Streams that every rank of a data-parallel training holds alike."""


@dataclass(slots=True)
class Pairing:
    """All tracks of a comparison, and what was left out."""

    tracks: list[Track]
    ranks: list[int]
    """Ranks compared, by the name they have in a."""
    layout_differences: list[LayoutDifference]
    notes: list[str]
    """What could not be compared, one sentence each."""
    context: Context
    """Lists what could not be read; grows while the comparison reads on."""
    by_rank: bool = True
    """Ranks are compared one by one; False where the world sizes differ, so that only streams
    that all ranks hold alike are compared."""
    steps: list[int] | None = None
    """Steps asked for; all where None."""
    complete: bool = True
    """Every rank of the training is compared in every stream of every rank."""
    streams: list[str] = field(init=False)
    """Streams compared, in causal order."""

    def __post_init__(self) -> None:
        present = {track.stream for track in self.tracks}
        self.streams = [stream for stream in STREAMS if stream in present]


def check_streams(streams: Collection[str] | None) -> list[str]:
    """Return the streams to compare, in causal order.

    Raises
    ------
    NothingToCompare
        If one is not a stream.
    """
    if streams is None:
        return list(STREAMS)
    wanted = [streams] if isinstance(streams, str) else list(streams)
    unknown = [stream for stream in wanted if stream not in STREAMS]
    if unknown or not wanted:
        raise NothingToCompare(
            f"streams must be among {', '.join(STREAMS)}; got {', '.join(unknown) or 'none'}"
        )
    return [stream for stream in STREAMS if stream in wanted]


def pair_runs(a: Run, b: Run, streams: Collection[str], steps: Collection[int] | None) -> Pairing:
    """Pair two runs, rank by rank.

    Raises
    ------
    NothingToCompare
        If they share no rank, stream or step.
    """
    notes: list[str] = []
    context = Context()
    sizes = [_world(run, context) for run in (a, b)]
    by_rank = sizes[0] == sizes[1] or [] in sizes
    complete = by_rank
    if by_rank:
        ranks = sorted(set(a.ranks) & set(b.ranks))
        places = [(rank, rank) for rank in ranks]
        for side, run, other in (("a", a, b), ("b", b, a)):
            missing = sorted(set(_missing(run, context)) | (set(other.ranks) - set(run.ranks)))
            if missing:
                complete = False
                notes.append(
                    f"{side} ({run.name}) has no records of {phrasing.ranks(missing)}, "
                    "so nothing is known about them"
                )
    else:
        ranks = a.ranks[:1]
        places = [(a.ranks[0], b.ranks[0])] if a.ranks and b.ranks else []
        worlds = [" and ".join(map(str, size)) for size in sizes]
        notes.append(
            f"a ran on {worlds[0]} ranks and b on {worlds[1]}, so their ranks do different work: "
            f"only what all ranks hold alike ({', '.join(REPLICATED)}) is compared, "
            f"{phrasing.ranks([places[0][0]]) if places else 'no rank'} of a with "
            f"{phrasing.ranks([places[0][1]]) if places else 'none'} of b"
        )
        streams = [stream for stream in streams if stream in REPLICATED]
    recordings = [(Recording(a, p, context), Recording(b, q, context)) for p, q in places]
    tracks = _tracks(recordings, streams, steps, notes, ("a", "b"))
    _refuse_nothing(tracks, recordings, (a.name, b.name), context)
    different = _excused(tracks)
    notes += _idle(tracks)
    return Pairing(tracks, ranks, different, notes, context, by_rank, _list(steps), complete)


def pair_ranks(
    run: Run, streams: Collection[str], steps: Collection[int] | None, reference: int | None = None
) -> Pairing:
    """Pair the ranks of one run with one of them, in the streams that all should hold alike.

    Parameters
    ----------
    run : Run
        The run.
    streams : collection of str
        Streams to compare; those that ranks do not hold alike are left out.
    steps : collection of int or None
        Steps to compare; all where None.
    reference : int, optional
        The rank the others are compared with; the lowest where omitted.

    Raises
    ------
    NothingToCompare
        If there is only one rank, or no stream is shared.
    """
    if len(run.ranks) < 2:
        raise NothingToCompare(
            f"comparing the ranks of a run needs records of at least two; found {len(run.ranks)}. "
            "Name a second run to compare this one with",
            run=run.name,
        )
    notes: list[str] = []
    context = Context()
    missing = _missing(run, context)
    if missing:
        notes.append(
            f"there are no records of {phrasing.ranks(missing)}, so nothing is known about them"
        )
    reference = run.ranks[0] if reference is None else reference
    left = [stream for stream in streams if stream in REPLICATED]
    recordings = {rank: Recording(run, rank, context) for rank in run.ranks}
    mine = recordings.pop(reference)
    pairs = [(mine, other) for other in recordings.values()]
    tracks = _tracks(pairs, left, steps, notes, (phrasing.ranks([reference]), "the others"))
    for track in tracks:
        track.rank = track.b.rank
    _refuse_nothing(tracks, pairs, (run.name,), context)
    return Pairing(
        tracks, run.ranks, _excused(tracks), notes, context, True, _list(steps), not missing
    )


def _list(steps: Collection[int] | None) -> list[int] | None:
    return None if steps is None else sorted(set(steps))


def _world(run: Run, context: Context) -> list[int]:
    """World sizes of a run's attempts; none where they cannot be read."""
    try:
        return sorted({attempt.world_size for attempt in run.attempts})
    except DamagedData as error:
        context.report(error)
        return []


def _missing(run: Run, context: Context) -> list[int]:
    try:
        return run.missing_ranks
    except DamagedData as error:
        context.report(error)
        return []


def _tracks(
    pairs: list[tuple[Recording, Recording]],
    streams: Iterable[str],
    steps: Collection[int] | None,
    notes: list[str],
    sides: tuple[str, str],
) -> list[Track]:
    wanted = None if steps is None else np.unique(np.fromiter(steps, np.int64))
    tracks = []
    only: dict[str, set[str]] = {sides[0]: set(), sides[1]: set()}
    uneven: dict[tuple[str, str], list[str]] = {}
    for stream in streams:
        for a, b in pairs:
            ours, theirs = a.steps(stream), b.steps(stream)
            if not len(ours) or not len(theirs):
                if len(ours) or len(theirs):
                    only[sides[0] if len(ours) else sides[1]].add(stream)
                continue
            common = np.intersect1d(ours, theirs, assume_unique=True)
            if wanted is not None:
                common = np.intersect1d(common, wanted, assume_unique=True)
            else:
                for side, mine in zip(sides, (ours, theirs), strict=True):
                    rest = np.setdiff1d(mine, common, assume_unique=True)
                    if len(rest):
                        seen = uneven.setdefault((side, phrasing.spans(rest.tolist())), [])
                        if stream not in seen:
                            seen.append(stream)
            if len(common):
                tracks.append(Track(stream, a.rank, a, b, common))
    compared = {track.stream for track in tracks}
    for side, found in only.items():
        lacking = [stream for stream in STREAMS if stream in found - compared]
        if lacking:
            notes.append(f"only {side} recorded {phrasing.listed(lacking)}")
    notes += _uneven(uneven)
    return tracks


def _uneven(found: dict[tuple[str, str], list[str]]) -> list[str]:
    """Say which steps only one side has; streams of almost the same steps in one line."""
    lines = []
    for side in dict.fromkeys(side for side, _ in found):
        steps = [(text, streams) for (other, text), streams in found.items() if other == side]
        text, streams = max(steps, key=lambda entry: len(entry[1]))
        rest = [f"{other} ({phrasing.listed(names)})" for other, names in steps if other != text]
        more = f"; also {phrasing.listed(rest)}" if rest else ""
        lines.append(f"only {side} recorded steps {text} ({phrasing.listed(streams)}{more})")
    return lines


def _excused(tracks: list[Track]) -> list[LayoutDifference]:
    found: dict[tuple[str, str], LayoutDifference] = {}
    for track in tracks:
        # Which samples a rank gets, and of what shape, is what the training does, not what it is.
        if track.stream != "batch":
            for difference in track.excuse():
                found.setdefault((difference.stream, difference.tensor), difference)
    return list(found.values())


def _idle(tracks: list[Track]) -> list[str]:
    """Leave out the random generators that nothing draws from, and say so."""
    names: dict[str, list[int]] = {}
    for track in tracks:
        if track.stream == "rng":
            for name in sorted(track.excuse_idle()):
                names.setdefault(name, []).append(track.rank)
    return [
        f"the generator {name} stands elsewhere in a than in b on {phrasing.ranks(where)}, but it "
        "is left out: it stands still from step to step in both, as if nothing draws from it"
        for name, where in names.items()
    ]


def _refuse_nothing(
    tracks: list[Track],
    pairs: list[tuple[Recording, Recording]],
    names: tuple[str, ...],
    context: Context,
) -> None:
    if tracks:
        return
    sides = zip(names * (1 if len(names) == 2 else 2), zip(*pairs, strict=True), strict=False)
    held = [f"{name} holds {_held(recordings)}" for name, recordings in sides] or [
        f"{name} holds no rank that the other holds" for name in names
    ]
    raise NothingToCompare(
        f"nothing was recorded on both sides: {'; '.join(held)}"
        + (f". Damaged: {'; '.join(context.damage)}" if context.damage else ""),
    )


def _held(recordings: tuple[Recording, ...]) -> str:
    found = []
    for stream in dict.fromkeys(name for recording in recordings for name in recording.streams):
        steps = {step for recording in recordings for step in recording.steps(stream).tolist()}
        found.append(f"{stream} at steps {phrasing.spans(steps)}" if steps else stream)
    return ", ".join(found) or "no fingerprints"
