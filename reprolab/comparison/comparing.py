"""The way from two runs to a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from os import PathLike

import numpy as np
import polars as pl

from reprolab.comparison import frames, metrics, search, settings, verdict
from reprolab.comparison.causality import Origin, origin, where
from reprolab.comparison.distances import APART, KINDS, NONFINITE
from reprolab.comparison.endings import ending
from reprolab.comparison.first import FirstDifference, describe, scalars
from reprolab.comparison.outcome import Extent, Outcome
from reprolab.comparison.pairing import Pairing, check_streams, pair_ranks, pair_runs
from reprolab.comparison.result import Comparison
from reprolab.comparison.tracks import PERSISTING, Track
from reprolab.errors import DamagedData
from reprolab.store import Run, open_run
from reprolab.vocabulary import EVENT_STREAMS, STREAMS

Source = Run | str | PathLike[str]


def compare(
    a: Source,
    b: Source | None = None,
    *,
    streams: Collection[str] | None = None,
    steps: int | Iterable[int] | None = None,
) -> Comparison:
    """Say where two runs part, or the ranks of one run.

    Parameters
    ----------
    a, b : Run or path
        The runs: finished, crashed or still being written. Without `b`, the ranks of `a` are
        compared with each other in what data-parallel replicas hold alike: parameters, optimizer
        state, reduced and used gradients.
    streams : collection of str, optional
        Compare only these streams.
    steps : int or iterable of int, optional
        Compare only these steps.

    Returns
    -------
    Comparison
        A verdict in words, the first difference in the order (step, stream in causal order, rank,
        tensor, block), and frames of distances that are measured when asked for.

    Raises
    ------
    NothingToCompare
        If both sides share no rank, stream or step, or a stream does not exist.
    RunNotFound, FormatTooNew, DamagedData
        If a run cannot be opened. Damage inside a run is skipped and listed in the result's notes.
    """
    wanted = check_streams(streams)
    if isinstance(steps, int | np.integer):
        steps = [int(steps)]
    chosen = None if steps is None else [int(step) for step in steps]
    one = _opened(a)
    if b is None:
        return _between_ranks(one, wanted, chosen)
    other = _opened(b)
    pairing = pair_runs(one, other, wanted, chosen)
    return _result(one, other, pairing, search.first(pairing.tracks), None, "loss" in wanted)


def _opened(run: Source) -> Run:
    return run if isinstance(run, Run) else open_run(run)


def _between_ranks(run: Run, streams: Collection[str], steps: Collection[int] | None) -> Comparison:
    pairing = pair_ranks(run, streams, steps)
    found = search.first(pairing.tracks)
    reference = pairing.tracks[0].a.rank
    if found is not None:
        majority = _majority(pairing.tracks, *found[:2])
        if majority != reference:
            # The rank that differs from most should be named, not those it differs from.
            reference = majority
            pairing = pair_ranks(run, streams, steps, reference)
            found = search.first(pairing.tracks)
    return _result(run, run, pairing, found, reference, False)


def _majority(tracks: list[Track], step: int, stream: str) -> int:
    """The lowest of the ranks that most ranks agree with."""
    held: dict[int, int] = {}
    for track in tracks:
        at = np.flatnonzero(track.steps == step)
        if track.stream == stream and len(at):
            mine, theirs = track.digests
            held[track.a.rank] = int(mine[at[0]])
            held[track.rank] = int(theirs[at[0]])
    amounts = Counter(held[rank] for rank in sorted(held))
    return min(held, key=lambda rank: (-amounts[held[rank]], rank))


def _result(
    a: Run,
    b: Run,
    pairing: Pairing,
    found: tuple[int, str, list[Track]] | None,
    reference: int | None,
    with_losses: bool,
) -> Comparison:
    context, ranks = pairing.context, pairing.ranks
    sides = {"a": metrics.facts(a, "metrics", ranks if pairing.by_rank else a.ranks, context)}
    unequal = pl.DataFrame(schema=metrics.DIFFERENCES)
    if reference is None:
        sides["b"] = metrics.facts(b, "metrics", ranks if pairing.by_rank else b.ranks, context)
        if pairing.by_rank:
            unequal = metrics.differences(sides["a"], sides["b"], pairing.steps)
    losses = metrics.losses(sides)
    ended = [ending(a, None if reference is not None else "a", context)]
    if reference is None:
        ended.append(ending(b, "b", context))
    first = describe(*found) if found else _by_loss(unequal) if with_losses else None
    start, agreed = _origin(pairing, first)
    if first is not None and start is not None:
        place = "a setting of the optimizer" if first.is_setting else where(start, first.stream)
        first = replace(first, where=place)
    names = (a.name, b.name)
    if reference is not None:
        parted = first.ranks if first else ()
        called = f"rank {reference}", f"rank {parted[0]}" if parted else "the others"
    else:
        called = names if a.name != b.name else ("a", "b")
    outcome = Outcome(
        names=names
        if a.name != b.name or reference is not None
        else (f"{a.name} (a)", f"{b.name} (b)"),
        sides=called,
        reference=reference,
        reference_agrees=tuple(rank for rank in ranks if first and rank not in first.ranks),
        extent=_extent(pairing),
        first=first,
        origin=start,
        before=agreed,
        by_rank=pairing.by_rank,
        missing=not pairing.complete,
        last_different=_last_different(pairing.tracks, unequal, first),
        still=_still(pairing.tracks) if first else pl.DataFrame(schema=frames.GROWTH),
        settings=tuple(scalars(pairing.tracks, first)) if first else (),
        samples=_samples(a, b, pairing, first) if reference is None else None,
        layout_differences=tuple(pairing.layout_differences),
        configuration=settings.configuration(a, b),
        environment=_environment(a, b, pairing, reference),
        metrics=unequal,
        losses=_last_losses(losses),
        notes=tuple(pairing.notes),
        endings=tuple(text for text in ended if text),
        damage=tuple(context.damage),
    )
    return Comparison(a, b, pairing, outcome, losses, verdict.write(outcome))


def _by_loss(unequal: pl.DataFrame) -> FirstDifference | None:
    """The first difference of the losses that the ledgers hold, where fingerprints show none."""
    name = pl.col("name")
    rows = unequal.filter((name == "loss") | name.str.starts_with("loss/"))
    if rows.is_empty():
        return None
    at = rows.filter(pl.col("step") == pl.col("step").min()).sort("rank", "name")
    row = at.row(0, named=True)
    finite = np.isfinite([row["a"], row["b"]])
    return FirstDifference(
        step=row["step"],
        stream="loss",
        rank=row["rank"],
        ranks=tuple(at["rank"].unique().sort().to_list()),
        tensor=row["name"],
        tensors=1,
        of_tensors=1,
        kind=KINDS[APART if finite.all() else NONFINITE],
        values=(row["a"], row["b"]),
        why_no_element="only the values in the ledgers differ; no fingerprint does",
    )


def _compared(pairing: Pairing, step: int) -> list[str]:
    """Streams of which every tensor of every rank was compared at a step, in causal order."""
    ranks = {track.rank for track in pairing.tracks}
    partly = {entry.stream for entry in pairing.layout_differences}
    there: dict[str, set[int]] = {}
    for track in pairing.tracks:
        if step in track.steps:
            there.setdefault(track.stream, set()).add(track.rank)
    return [name for name in STREAMS if there.get(name) == ranks and name not in partly]


def _origin(
    pairing: Pairing, first: FirstDifference | None
) -> tuple[Origin | None, tuple[str, ...]]:
    if first is None:
        return None, ()
    place = STREAMS.index(first.stream)
    here = [name for name in _compared(pairing, first.step) if STREAMS.index(name) < place]
    steps = np.unique(np.concatenate([track.steps for track in pairing.tracks]))
    earlier = steps[steps < first.step]
    before = int(earlier[-1]) if len(earlier) else None
    known = _compared(pairing, before) if before is not None else []
    return origin(first.stream, first.step, before, here, known), tuple(here)


def _extent(pairing: Pairing) -> Extent:
    tracks = pairing.tracks
    steps = np.unique(np.concatenate([track.steps for track in tracks]))
    happened = [track.steps for track in tracks if track.stream in EVENT_STREAMS]
    last = max((int(part[-1]) for part in happened), default=None)
    final = int(steps[-1]) if last is not None and steps[-1] > last else None
    tensors = {
        (track.stream, spec.name)
        for track in tracks
        for segment in track.segments
        for spec in segment.match.tensors
    }
    return Extent(
        steps,
        tuple(pairing.ranks),
        tuple(pairing.streams),
        len(tensors),
        sum(track.nbytes for track in tracks),
        final,
    )


def _last_different(
    tracks: list[Track], unequal: pl.DataFrame, first: FirstDifference | None
) -> int | None:
    if first is None:
        return None
    found = [int(steps[-1]) for track in tracks if len(steps := track.steps[track.differs()])]
    return max(found, default=None) if found else int(unequal["step"].max())  # type: ignore[arg-type]


def _still(tracks: list[Track]) -> pl.DataFrame:
    """Growth of the parameters (or else the optimizer's state) at the last step."""
    for stream in PERSISTING:
        final = [track.narrowed(track.steps[-1:]) for track in tracks if track.stream == stream]
        growth = frames.measure(final).growth
        growth = growth.filter(pl.col("step") == pl.col("step").max())
        if (growth["ranks"] > 0).any():
            return growth
    return pl.DataFrame(schema=frames.GROWTH)


def _samples(a: Run, b: Run, pairing: Pairing, first: FirstDifference | None) -> str | None:
    if first is None or first.stream != "batch" or not pairing.by_rank:
        return None
    ours, theirs = (metrics.facts(run, "batches", pairing.ranks, pairing.context) for run in (a, b))
    return metrics.samples(ours, theirs, first.step)


def _environment(a: Run, b: Run, pairing: Pairing, reference: int | None) -> pl.DataFrame:
    try:
        if reference is not None:
            return settings.environment_of_ranks(a, reference)
        return settings.environment(a, b)
    except DamagedData as error:
        pairing.context.report(error)
        return settings.nothing()


def _last_losses(losses: pl.DataFrame) -> tuple[int, float, float] | None:
    means = losses.group_by("step", "side").agg(pl.col("loss").mean())
    both = means.filter(pl.col("side") == "a").join(
        means.filter(pl.col("side") == "b"), on="step", suffix="_b"
    )
    if both.is_empty():
        return None
    row = both.sort("step").row(-1, named=True)
    return row["step"], row["loss"], row["loss_b"]
