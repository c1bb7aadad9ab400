"""The verdict: what was found, in one paragraph of plain words.

Every sentence states something that was read. Where something was not recorded, the sentence says
what that leaves open instead of filling it in.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from reprolab.comparison import causality, phrasing
from reprolab.comparison.differing import size_of_it, what_differs
from reprolab.comparison.outcome import Outcome

_KEYS_SHOWN = 4
_VALUE_SHOWN = 60


def write(found: Outcome) -> str:
    """The whole paragraph."""
    parts = _different(found) if found.first or found.layout_differences else _same(found)
    return " ".join(phrasing.sentence(part) for part in parts)


def _same(found: Outcome) -> Iterator[str]:
    a, b = found.names
    if found.reference is None:
        yield (
            f"the runs {a} and {b} are identical, bit for bit, in all that was compared: "
            f"{_extent(found)}"
        )
    else:
        yield (
            f"the {phrasing.count(len(found.extent.ranks), 'rank')} of the run {a} are identical, "
            f"bit for bit, in all that they should hold alike: {_extent(found)}"
        )
    if found.metrics.height:
        yield _metrics(found)
    yield from _settings(found)
    yield from _open(found)


def _different(found: Outcome) -> Iterator[str]:
    a, b = found.names
    if found.layout_differences:
        yield _layouts(found)
    if found.first is None:
        yield f"everything else is identical, bit for bit: {_extent(found)}"
        yield from _settings(found)
        yield from _open(found)
        return
    first = found.first
    place = f"at step {first.step}, in {causality.WORDS[first.stream]} ({first.stream})"
    if found.reference is None:
        yield f"the runs {a} and {b} part {place}{_on_ranks(found)}"
    else:
        yield f"the ranks of the run {a} part {place}: {_odd_ranks(found)}"
    yield what_differs(first, found.sides)
    if text := size_of_it(first, found.sides):
        yield text
    if found.samples:
        yield f"by the identities of their samples, {found.samples}"
    if agreed := _agreed(found):
        yield agreed
    yield _origin(found)
    yield from _also(found)
    yield from _afterwards(found)
    yield from _settings(found)
    yield from _open(found)


def _extent(found: Outcome) -> str:
    extent = found.extent
    steps = phrasing.count(len(extent.steps) - (extent.final is not None), "step")
    shown = [step for step in extent.steps.tolist() if step != extent.final]
    named = f" ({phrasing.spans(shown)})" if shown else ""
    after = " and the state after the last one" if extent.final is not None else ""
    return (
        f"{steps}{named}{after}, {phrasing.ranks(extent.ranks)}, "
        f"{phrasing.count(len(extent.streams), 'stream')} ({', '.join(extent.streams)}), "
        f"{phrasing.count(extent.tensors, 'tensor')}, "
        f"{phrasing.size(extent.nbytes)} of tensors by their fingerprints"
    )


def _layouts(found: Outcome) -> str:
    differences = found.layout_differences
    shown = phrasing.listed((f"{entry.stream}: {entry}" for entry in differences), 4)
    amount = phrasing.count(len(differences), "tensor")
    a, b = found.names
    who = f"the runs {a} and {b}" if found.reference is None else f"the ranks of {a}"
    return (
        f"{who} do not hold the same tensors; {amount} cannot be compared ({shown}), the rest was"
    )


def _on_ranks(found: Outcome) -> str:
    assert found.first is not None  # noqa: S101
    if not found.by_rank:
        return ""
    ranks, there = found.first.ranks, found.extent.ranks
    if len(there) == 1:
        return ""
    if len(ranks) == len(there):
        return f", {phrasing.on_all(len(ranks))}"
    if len(ranks) == 1:
        return f", on rank {ranks[0]} alone"
    return f", on {phrasing.ranks(ranks)} of {len(there)}"


def _odd_ranks(found: Outcome) -> str:
    assert found.first is not None  # noqa: S101
    odd, rest = found.first.ranks, found.reference_agrees
    verb = "differs" if len(odd) == 1 else "differ"
    if len(odd) == 1 and len(rest) == 1:
        two = f"{phrasing.ranks(rest)} and {phrasing.ranks(odd)}"
        return f"{two} differ, and nothing tells which is right"
    agreeing = ", which agree with one another" if len(rest) > 1 else ""
    return f"{phrasing.ranks(odd)} {verb} from {phrasing.ranks(rest)}{agreeing}"


def _agreed(found: Outcome) -> str | None:
    assert found.first is not None  # noqa: S101
    steps = [step for step in found.extent.steps.tolist() if step < found.first.step]
    parts = []
    if steps:
        span = phrasing.spans(steps)
        parts.append(f"step{'' if len(steps) == 1 else 's'} {span} in every stream compared")
    if found.before:
        parts.append(f"in step {found.first.step} {phrasing.listed(found.before, 9)}")
    if not parts:
        return None
    everywhere = " on every rank compared" if len(found.extent.ranks) > 1 else ""
    return f"before that everything is identical{everywhere}: {', and '.join(parts)}"


def _origin(found: Outcome) -> str:
    assert found.first is not None  # noqa: S101
    assert found.origin is not None  # noqa: S101
    first, start = found.first, found.origin
    ranks = found.reference is not None
    if first.is_setting:
        return _setting(found)
    if start.during is None:
        who = "the ranks" if ranks else "the runs"
        text = f"{who} start with different {causality.WORDS[first.stream].removeprefix('the ')}"
        return text if first.step == 0 else f"at the first step compared, {text}"
    if not start.stages:
        low, high = start.during
        return (
            f"nothing was compared in between, so it happened in {_steps(low, high)}; "
            "a run recorded at every step would say where"
        )
    if ranks:
        return _origin_between_ranks(found)
    stages = phrasing.listed(start.stages, 9)
    during = f" of step {start.during[0]}" if start.during[0] != first.step else ""
    if start.unknown:
        unseen = phrasing.listed((causality.WORDS[name] for name in start.unknown), 9)
        return (
            f"so they part in {stages}{during}, or before it: {unseen} were not compared and "
            "cannot be ruled out"
        )
    missing = ", as far as the ranks with records tell" if found.missing else ""
    if start.stages == (causality.DATA,):
        return f"so it is the data: the batches are different ones{missing}"
    if start.stages == (causality.DRAWS,):
        return f"so during step {start.during[0]} random numbers were drawn differently{missing}"
    outside = ""
    if causality.UPDATE in start.stages:
        outside = ", or something else wrote to them after it"
    if start.stages == (causality.BACKWARD,):
        outside = ", or something in the forward pass that does not show in the loss"
    if len(start.stages) > 1:
        return (
            f"so they part in one of these: {stages}{during}{outside}{missing}; what lies between "
            "them was not compared"
        )
    return (
        f"what went into {stages}{during} is the same and what came out is not, so that is where "
        f"they part{outside}{missing}"
    )


def _setting(found: Outcome) -> str:
    assert found.origin is not None  # noqa: S101
    who = "the ranks" if found.reference is not None else "the runs"
    if found.origin.during is None:
        return f"{who} start with other settings of the optimizer"
    return (
        "this setting of the optimizer is not computed from any stream: "
        "a schedule, the loop or a configuration gave it another value"
    )


def _origin_between_ranks(found: Outcome) -> str:
    assert found.first is not None  # noqa: S101
    assert found.origin is not None  # noqa: S101
    stream, start = found.first.stream, found.origin
    if stream == "grads":
        return "every rank should get the same gradients from the reduction and they did not"
    if stream == "grads_used" and start.stages == (causality.CLIPPING,):
        return "the reduced gradients are the same on them, so the unscaling or clipping differs"
    if start.stages == (causality.UPDATE,):
        assert start.during is not None  # noqa: S101
        return (
            f"the gradients of step {start.during[0]} are the same on them, so the update differs, "
            "or something else wrote to their copy after it"
        )
    return f"so they part between these: {phrasing.listed(start.stages, 9)}"


def _also(found: Outcome) -> Iterator[str]:
    if not found.settings:
        return
    shown = []
    for stream, tensor, a, b in found.settings:
        left, right = phrasing.pair(a, b)
        shown.append(f"{stream} {tensor} ({left} against {right})")
    yield f"at the same step there also differ {phrasing.listed(shown, 4)}"


def _afterwards(found: Outcome) -> Iterator[str]:
    assert found.first is not None  # noqa: S101
    last = int(found.extent.steps[-1])
    if found.last_different is not None and found.last_different < last:
        after = found.last_different
        yield f"the difference is gone again: after step {after} everything is identical"
        return
    if last == found.first.step:
        return
    parts = [
        _apart(stream, *numbers)
        for stream, *numbers in found.still.select("stream", "distance", "error", "relative").rows()
    ]
    if not parts and "params" in found.extent.streams:
        parts.append("the parameters are identical")
    if parts:
        yield f"at step {last}, the last one compared, {phrasing.listed(parts)}"
    if found.losses:
        step, a, b = found.losses
        left, right = phrasing.pair(a, b)
        if left == right:
            yield f"the loss at step {step} is {left} on both sides"
        else:
            a_side, b_side = found.sides
            yield f"the loss at step {step} is {left} in {a_side}, {right} in {b_side}"


def _apart(stream: str, distance: float, error: float, relative: float) -> str:
    words = causality.WORDS[stream]
    if relative == float("inf"):
        return f"{words} hold different numbers of NaN or infinite elements"
    far = f"{phrasing.rough(distance)} ± {phrasing.rough(error)} apart"
    return f"{words} are {far} (relative {phrasing.rough(relative)})"


def _settings(found: Outcome) -> Iterator[str]:
    environment = found.environment.filter(~pl.col("incidental"))
    differing = [
        f"the {name} differs ({_keys(frame)})"
        for name, frame in (("configuration", found.configuration), ("environment", environment))
        if frame.height
    ]
    if differing:
        yield (", and " if len(differing) > 1 else "").join(differing)
    elif found.first is not None and found.reference is None:
        yield "their configurations and environments are the same"


def _keys(frame: pl.DataFrame) -> str:
    rows = frame.select("key", "a", "b").rows()
    return phrasing.listed(
        (f"{key}: {_short(a)} against {_short(b)}" for key, a, b in rows), _KEYS_SHOWN
    )


def _short(value: str | None) -> str:
    if value is None:
        return "not there"
    return value if len(value) <= _VALUE_SHOWN else f"{value[: _VALUE_SHOWN - 1]}…"


def _metrics(found: Outcome) -> str:
    names = found.metrics["name"].unique(maintain_order=True).to_list()
    rows = (
        found.metrics.filter(found.metrics["name"] == name).row(0, named=True) for name in names
    )
    shown = []
    for row in rows:
        left, right = phrasing.pair(row["a"], row["b"])
        shown.append(f"{row['name']} from step {row['step']} on ({left} against {right})")
    return f"only recorded metrics differ: {phrasing.listed(shown, 4)}"


def _open(found: Outcome) -> Iterator[str]:
    if found.notes:
        yield f"not compared: {'; '.join(found.notes)}"
    if found.endings:
        yield "; ".join(found.endings)
    if found.damage:
        amount = phrasing.count(len(found.damage), "damaged record")
        verb = "was" if len(found.damage) == 1 else "were"
        yield f"{amount} could not be read and {verb} skipped"


def _steps(low: int, high: int) -> str:
    return f"step {low}" if low == high else f"one of the steps {low} to {high}"
