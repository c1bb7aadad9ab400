"""The findings in plain sentences: who, when, what, what it costs, what to do."""

from __future__ import annotations

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling import families, shares
from reprolab.diagnosis.straggling.attribution import Attribution
from reprolab.diagnosis.straggling.causes import Cause, Finding
from reprolab.diagnosis.straggling.episodes import PERIODIC, PERSISTENT
from reprolab.diagnosis.straggling.interval import Interval
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.workload import Workload

_NAMES = {
    shares.STAGE: "differences between stages",
    shares.RANK: "lasting differences between ranks",
    shares.PARTITION: "the sizes of batches",
    shares.MOMENT: "differences from moment to moment",
    shares.COMMUNICATION: "transfers",
}

_DOING = {
    families.COMPUTE: "in computing",
    families.DATA: "in loading data",
    families.CHECKPOINT: "in saving checkpoints",
    families.HOST: "outside of any recorded work",
    families.COMMUNICATION: "in transfers",
}


def headline(finding: Finding) -> str:
    """The class in a few words."""
    ranks = finding.culprits["rank"].to_list()
    if ranks:
        verb = "is" if len(ranks) == 1 else "are"
        return f"{_ranks(ranks)} {verb} late: {finding.cause.title}"
    if finding.cause in (Cause.NONE, Cause.ALONE):
        return finding.cause.title
    return f"{finding.cause.title}, no bad rank"


def sentences(
    model: Model,
    finding: Finding,
    episodes: pl.DataFrame,
    late: pl.DataFrame,
    parts: dict[str, float],
    work: Workload,
    split: Attribution,
    slowdown: Interval,
) -> list[str]:
    """Two to five sentences."""
    if finding.cause is Cause.ALONE:
        rank = model.graph.nodes["rank"][0]
        return [
            f"Only rank {rank} was recorded, so there is nothing to compare it with; its mean step "
            f"takes {_time(float(model.actual.mean()))}.",
            finding.cause.advice,
        ]
    said = [_first(model, finding, episodes, late, parts, work, split)]
    said.append(_slowdown(model, finding, slowdown))
    if not finding.culprits.height and finding.cause is not Cause.NONE:
        worst = ", ".join(map(str, split.worst))
        said.append(
            f"No rank stands out: making the worst 3 % of the ranks ideal ({worst}) would remove "
            f"{_percent(split.explained_by_worst)} of the slowdown."
        )
    if finding.cause is not Cause.NONE:
        said.append(finding.cause.advice)
    if not model.graph.meets.any():
        said.append("No collective joins the ranks, so nothing shows who waited for whom.")
    return said


def _first(
    model: Model,
    finding: Finding,
    episodes: pl.DataFrame,
    late: pl.DataFrame,
    parts: dict[str, float],
    work: Workload,
    split: Attribution,
) -> str:
    title = headline(finding)
    title = title[0].upper() + title[1:]
    if finding.culprits.height:
        return f"{title}; {_what_happened(model, finding, episodes, late)}."
    if finding.cause is Cause.NONE:
        return f"{title}: {_not_worth_it(episodes)}."
    excess = float(model.actual.mean()) - model.ideal
    largest = sorted(parts, key=lambda kind: -parts[kind])[:2]
    made_of = f"{_percent(parts[largest[0]] / excess)} of the slowdown are {_NAMES[largest[0]]}"
    if parts[largest[1]] > 0.1 * excess:
        made_of += f" ({_percent(parts[largest[1]] / excess)} {_NAMES[largest[1]]})"
    return f"{title}: {made_of}{_evidence(finding, model, work, split)}."


def _evidence(finding: Finding, model: Model, work: Workload, split: Attribution) -> str:
    if finding.cause is Cause.STAGE:
        stage, times = slowest_stage(model)
        ideal = _percent(split.explained_by_last_stage)
        return (
            f"; stage {stage} computes {times:.2f} times as long as the others, and an ideal last "
            f"stage would remove {ideal}"
        )
    if finding.cause is Cause.PARTITION:
        said = ""
        if work.measure is not None:
            said = f"; {work.measure} explain {_percent(work.explained)} of what computations vary"
        if np.isfinite(work.together):
            said += (
                "; a microbatch's forward and backward durations go together "
                f"(correlation {work.together:.2f})"
            )
        return said
    return ""


def slowest_stage(model: Model) -> tuple[int, float]:
    """The stage that computes longest, and how many times the mean of the others it takes."""
    nodes = model.graph.nodes
    works = nodes["operation"].str.contains("compute").to_numpy()
    stage = nodes["stage"].to_numpy()
    own = model.timing.own.mean(axis=1)
    stages = np.unique(stage)
    mean = np.array([own[works & (stage == one)].mean() for one in stages])
    slowest = int(mean.argmax())
    others = np.delete(mean, slowest)
    return int(stages[slowest]), float(mean[slowest] / others.mean()) if len(others) else 1.0


def _what_happened(
    model: Model, finding: Finding, episodes: pl.DataFrame, late: pl.DataFrame
) -> str:
    rank = finding.culprits["rank"][0]
    who = "it" if finding.culprits.height == 1 else f"rank {rank}"
    whose = "its peers do" if finding.culprits.height == 1 else "their peers do"
    cost = f"doing as {whose} would save {_percent(finding.saved)} of the mean step"
    if finding.recorded_once:
        row = late.filter(pl.col("rank") == rank).row(0, named=True)
        steps = len(model.timing.steps)
        once = "one step was" if steps == 1 else f"{steps} steps were"
        return (
            f"{who} came last to {row['times_last']} of {row['collectives']} collectives, "
            f"{_time(row['lag'])} in sum after the first; {cost}; only {once} recorded, so nothing "
            "says whether this lasts"
        )
    row = episodes.filter(pl.col("rank") == rank).row(0, named=True)
    slower, when = row["slower"], _when(row, len(model.timing.steps))
    doing = _DOING[str(row["family"])]
    if slower > 9:
        by = f"spent {_time(row['seconds'])} more than its peers {doing}"
    elif slower > 1:
        by = f"took {1 + slower:.1f} times as long as its peers {doing}"
    else:
        by = f"was {_percent(slower)} slower than its peers {doing}"
    return f"{who} {by} {when}; {cost}"


def _when(row: dict[str, object], total: int) -> str:
    first, last, count = row["first_step"], row["last_step"], row["steps"]
    if row["kind"] == PERSISTENT:
        if count == total:
            return f"at all {total} steps ({first} to {last})"
        return f"from step {first} to step {last} ({count} recorded steps)"
    if row["kind"] == PERIODIC:
        return f"at every {row['period']}th step from {first} to {last}"
    if count == 1:
        return f"at step {first}"
    return f"at {count} single steps from {first} to {last}"


def _not_worth_it(episodes: pl.DataFrame) -> str:
    said = "no rank costs as much as 1 % of the step"
    lasting = episodes.filter(pl.col("kind") != "transient")
    if lasting.height:
        row = lasting.row(0, named=True)
        slower = f"{_percent(row['slower'])} slower {_DOING[str(row['family'])]}"
        steps = f"from step {row['first_step']} to step {row['last_step']}"
        said += f" (rank {row['rank']} is {slower} {steps}, but others take longer still)"
    return said


def _slowdown(model: Model, finding: Finding, slowdown: Interval) -> str:
    mean, ideal = float(model.actual.mean()), model.ideal
    return (
        f"The mean step takes {_time(mean)}, an ideal one {_time(ideal)}: the slowdown is "
        f"S = {slowdown}."
    )


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 4:
        return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:3]))} and {len(ranks) - 3} more"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
