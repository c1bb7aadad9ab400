"""From operations to the sentence: the trouble that was put in is the one that comes out."""

import json

import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling import Cause, stragglers
from reprolab.errors import TraceError
from reprolab.tables.operations import OPERATIONS, phases_of
from reprolab.traces.synthetic import data_parallel, lognormal


def slow_ranks(ranks=8, steps=80, **factors):
    slow = np.ones((ranks, steps))
    for rank, factor in factors.items():
        slow[int(rank[1:]), 20:60] = factor
    return data_parallel(ranks, steps, slow=slow)


def longer(frame, name, rank, factor, where=None):
    """Make an operation of one rank longer, and push back what follows on it and on the others."""
    chosen = (pl.col("operation") == name) & (pl.col("rank") == rank)
    if where is not None:
        chosen &= where
    extra = pl.when(chosen).then((factor - 1) * pl.col("duration")).otherwise(0.0)
    frame = frame.sort("rank", "step", "start").with_columns(extra.alias("extra"))
    lost = frame.group_by("step").agg(pl.col("extra").sum().alias("lost")).sort("step")
    lost = lost.with_columns((pl.col("lost").cum_sum() - pl.col("lost")).alias("earlier"))
    before = pl.col("extra").cum_sum().over("rank", "step") - pl.col("extra")
    met, after = pl.col("operation") == "reduce", pl.col("operation") == "optimizer"
    shift = pl.when(after).then("lost").otherwise(before) + pl.col("earlier")
    wait = pl.when(met).then(pl.col("lost") - before).otherwise("extra")
    return (
        frame.join(lost, on="step")
        .with_columns(pl.col("start") + shift, pl.col("duration") + wait)
        .select(list(OPERATIONS))
    )


def test_nothing_wrong():
    found = stragglers(data_parallel(8, 80))
    assert found.headline == "no straggler"
    assert found.cause is Cause.NONE
    assert found.late == ()
    assert "no rank costs as much as 1 % of the step" in found.verdict


def test_a_slow_rank():
    found = stragglers(slow_ranks(r3=1.2))
    assert found.headline == "rank 3 is late: slow computation"
    assert (
        "it was 19 % slower than its peers in computing from step 20 to step 59" in (found.verdict)
        or "20 % slower than its peers in computing from step 20 to step 59" in found.verdict
    )
    assert found.cause.advice in found.verdict


def test_two_slow_ranks_are_both_named():
    found = stragglers(slow_ranks(r3=1.2, r6=1.4))
    assert found.late == (6, 3)
    assert found.headline.startswith("ranks 6 and 3 are late")


def test_two_equally_slow_ranks_do_not_excuse_each_other():
    found = stragglers(slow_ranks(r3=1.3, r6=1.3))
    assert set(found.late) == {3, 6}
    assert found.finding.saved > 0.1


def test_a_slow_rank_that_a_slow_stage_hides_is_not_late(pipeline, even):
    """Rank 0 is 5 % slower than its peers, on a stage that always waits for the last one."""
    rng = np.random.default_rng(0)

    def seconds(name, replica, stage, microbatch, step):
        factor = 2.0 if stage == 2 else 1.05 if (replica, stage) == (0, 0) else 1.0
        return even(name) * (factor * rng.normal(1, 0.002) if "compute" in name else 1.0)

    found = stragglers(pipeline(dp=3, stages=3, microbatches=12, steps=20, seconds=seconds)[0])
    assert found.rows["episodes"]["rank"].to_list() == [0]
    assert found.late == ()
    assert found.headline == "stage imbalance, no bad rank"


@pytest.mark.parametrize(
    ("name", "factor", "cause"),
    [("data", 15.0, Cause.DATA), ("backward", 1.3, Cause.COMPUTE)],
)
def test_the_family_is_the_cause(name, factor, cause):
    found = stragglers(longer(data_parallel(8, 60), name, 5, factor))
    assert found.late == (5,)
    assert found.cause is cause


def test_checkpoints_of_one_rank():
    frame = data_parallel(8, 60).with_columns(
        pl.when(pl.col("operation") == "data")
        .then(pl.lit("checkpoint"))
        .otherwise("operation")
        .alias("operation")
    )
    found = stragglers(longer(frame, "checkpoint", 2, 12.0))
    assert found.headline == "rank 2 is late: slow checkpoints"


def test_garbage_collection_at_every_tenth_step():
    frame = data_parallel(8, 120).with_columns(
        pl.when(pl.col("operation") == "data")
        .then(pl.lit("gc"))
        .otherwise("operation")
        .alias("operation")
    )
    found = stragglers(longer(frame, "gc", 6, 25.0, pl.col("step") % 10 == 4))
    assert found.headline == "rank 6 is late: garbage collection or the host"
    assert "at every 10th step from 4 to 114" in found.verdict


def test_uneven_batches():
    work = np.random.default_rng(0).integers(500, 1500, (8, 80)).astype(float)
    found = stragglers(data_parallel(8, 80, work=work))
    assert found.headline == "uneven partition, no bad rank"
    assert "tokens explain" in found.verdict


def test_noise_has_no_culprit():
    found = stragglers(data_parallel(16, 100, noise=lognormal()))
    assert found.headline == "noise from moment to moment, no bad rank"


def test_a_slow_stage(pipeline, even):
    def seconds(name, replica, stage, microbatch, step):
        return even(name) * (1.5 if stage == 2 and "compute" in name else 1.0)

    found = stragglers(pipeline(seconds=seconds)[0])
    assert found.headline == "stage imbalance, no bad rank"
    assert "stage 2 computes 1.50 times as long" in found.verdict


def test_a_slow_rank_in_a_pipeline(pipeline, even):
    rng = np.random.default_rng(0)

    def seconds(name, replica, stage, microbatch, step):
        slow = 1.3 if (replica, stage) == (1, 1) and "compute" in name else 1.0
        return even(name) * slow * rng.normal(1, 0.005)

    found = stragglers(pipeline(dp=3, steps=20, seconds=seconds)[0])
    assert found.late == (4,)
    assert found.cause is Cause.COMPUTE
    assert found.attribution.by_rank["rank"][0] == 4


def test_uneven_microbatches_in_a_pipeline(pipeline, even):
    size = np.random.default_rng(0).uniform(0.5, 2.0, (3, 8, 20))

    def seconds(name, replica, stage, microbatch, step):
        factor = size[replica, microbatch, step] if "compute" in name else 1.0
        return even(name) * factor

    found = stragglers(pipeline(dp=3, microbatches=8, steps=20, seconds=seconds)[0])
    assert found.headline == "uneven partition, no bad rank"


@pytest.mark.parametrize("kind", ["pipeline", "serial"])
def test_no_clock_matters(pipeline, even, kind):
    def clock(rank, moment):
        return moment * (1 + 2e-5 * rank) + 17.0 * rank**2

    if kind == "pipeline":
        rng = np.random.default_rng(0)

        def seconds(name, replica, stage, microbatch, step):
            slow = 1.3 if (replica, stage) == (1, 1) and "compute" in name else 1.0
            return even(name) * slow * rng.normal(1, 0.005)

        plain, _ = pipeline(dp=3, steps=20, seconds=seconds)
    else:
        plain = slow_ranks(r3=1.2)
    rank, start, duration = (plain[c].to_numpy() for c in ("rank", "start", "duration"))
    begin, end = clock(rank, start), clock(rank, start + duration)
    skewed = plain.with_columns(pl.Series("start", begin), pl.Series("duration", end - begin))
    one, other = stragglers(plain), stragglers(skewed)
    assert other.headline == one.headline
    assert other.late == one.late
    assert other.slowdown.value == pytest.approx(one.slowdown.value, abs=2e-3)


def test_one_rank_has_nobody_to_wait_for():
    found = stragglers(data_parallel(1, 30))
    assert found.headline == "one rank only, nothing to compare"
    assert "Only rank 0 was recorded" in found.verdict


def test_without_collectives_nothing_shows_who_waited():
    frame = data_parallel(4, 30).filter(pl.col("operation") != "reduce")
    found = stragglers(frame)
    assert "No collective joins the ranks" in found.verdict
    assert any("they were taken to agree" in note for note in found.notes)


def test_one_step_says_that_it_is_only_one():
    slow = np.ones((8, 1))
    slow[5] = 1.5
    found = stragglers(data_parallel(8, 1, slow=slow))
    assert found.late == (5,)
    assert "it came last to 1 of 1 collectives" in found.verdict
    assert "only one step was recorded" in found.verdict


def test_phases_alone_name_the_same_rank():
    frame = slow_ranks(r3=1.2)
    whole, sums = stragglers(frame), stragglers(phases_of(frame))
    assert sums.late == whole.late == (3,)
    assert sums.slowdown.value == pytest.approx(whole.slowdown.value, rel=0.05)
    assert any("Only sums by phase" in note for note in sums.notes)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_phases_in_a_file(tmp_path, suffix):
    phases = phases_of(slow_ranks(r3=1.2)).select("rank", "step", "phase", "seconds")
    path = tmp_path / f"phases.{suffix}"
    phases.write_parquet(path) if suffix == "parquet" else phases.write_csv(path)
    assert stragglers(path).late == (3,)


def test_phases_with_negative_sums_are_refused():
    phases = phases_of(data_parallel(2, 5)).with_columns(-pl.col("seconds"))
    with pytest.raises(TraceError, match="at least 0 seconds; got -"):
        stragglers(phases)


def test_everything_is_json():
    document = json.loads(json.dumps(stragglers(slow_ranks(r3=1.2)).to_dict(), allow_nan=False))
    assert document["headline"] == "rank 3 is late: slow computation"
    assert document["late"] == [3]
    assert document["culprits"][0]["rank"] == 3
    assert document["slowdown"]["low"] < document["slowdown"]["value"]
    json.dumps(stragglers(data_parallel(4, 1)).to_dict(), allow_nan=False)


def test_the_evidence_has_rows():
    found = stragglers(slow_ranks(r3=1.2))
    assert set(found.rows) >= {
        "episodes",
        "culprits",
        "shares",
        "lateness",
        "ranks",
        "steps",
        "heat",
    }
    assert found.rows["steps"].height == 80
    assert found.rows["heat"].height == 8 * 80
    assert found.rows["shares"]["share"].sum() == pytest.approx(1.0)


def test_cost():
    found = stragglers(slow_ranks(r3=1.2))
    wasted = 80 * (found.model.actual.mean() - found.model.ideal)
    cost = found.cost(watts=500, kilograms_co2_per_kilowatt_hour=0.4)
    assert cost.seconds == pytest.approx(wasted)
    assert cost.device_hours == pytest.approx(wasted * 8 / 3600)
    assert cost.kilowatt_hours == pytest.approx(cost.device_hours * 0.5)
    assert cost.kilograms_co2 == pytest.approx(cost.kilowatt_hours * 0.4)
    assert cost.working + cost.transferring + cost.waiting == pytest.approx(1.0)
    more = found.cost(devices=16, steps=800)
    assert more.device_hours == pytest.approx(20 * cost.device_hours)
    assert more.kilowatt_hours is None
    with pytest.raises(ValueError, match="needs the power"):
        found.cost(kilograms_co2_per_kilowatt_hour=0.4)


def test_waiting_grows_with_the_job():
    from reprolab.diagnosis.straggling.cost import against_world_size

    costs = [stragglers(data_parallel(n, 40)).cost() for n in (16, 2)]
    frame = against_world_size(costs)
    assert frame["devices"].to_list() == [2, 16]
    assert frame["waiting"][1] > frame["waiting"][0]


def test_a_plan_moves_work_off_the_slow_rank():
    slow = np.ones((4, 60))
    slow[2] = 1.5
    found = stragglers(data_parallel(4, 60, slow=slow))
    proposal = found.plan(microbatches=12)
    assert proposal.plan.switch
    assert proposal.table["planned"].sum() == 48
    assert proposal.table["planned"][2] == min(proposal.table["planned"])
    # The replay agrees with the plan's own arithmetic.
    assert proposal.gain == pytest.approx(proposal.plan.gain, rel=0.1)
    assert proposal.gain > 0.2 * proposal.now
    assert proposal.advice == (Cause.COMPUTE.advice,)


def test_a_healthy_job_keeps_its_plan():
    proposal = stragglers(data_parallel(4, 60)).plan(microbatches=12)
    assert not proposal.plan.switch
    assert proposal.gain == 0
    assert proposal.table["weight"].to_list() == [1.0] * 4
    with pytest.raises(ValueError, match="at least 1"):
        stragglers(data_parallel(4, 60)).plan(microbatches=0)


def test_a_folder_that_is_neither_says_both(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(TraceError, match=r"there is no trace here.*as a run:"):
        stragglers(tmp_path)
