"""Answers published with the OSDI'25 traces: ST is stage imbalance, SE uneven sequence lengths."""

import json
import time

import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling import stragglers
from reprolab.diagnosis.straggling.attribution import attribute
from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.tables.operations import phases_of
from reprolab.traces import open_trace

HEADLINES = {"ST": "stage imbalance, no bad rank", "SE": "uneven partition, no bad rank"}
SAME = 1e-5


@pytest.fixture(scope="module", params=["ST", "SE"])
def case(request, published):
    name = request.param
    path = published / f"trace-{name}.parquet"
    answers = {
        kind: json.loads((published / f"{kind}-{name}.json").read_text())
        for kind in ("result", "ms", "mw")
    }
    return name, open_trace(path), stragglers(path), answers


def test_slowdowns(case):
    _, _, found, answers = case
    result = answers["result"]
    assert found.slowdown.value == pytest.approx(result["blocking_slowdown"], abs=SAME)
    assert found.slowdown.low < found.slowdown.value < found.slowdown.high
    split = found.attribution
    assert split.explained_by_last_stage == pytest.approx(answers["ms"]["Ms"], abs=SAME)
    assert split.explained_by_worst == pytest.approx(answers["mw"]["Mw"], abs=SAME)
    assert found.model.ideal == pytest.approx(answers["ms"]["tideal"], abs=SAME)
    assert found.model.actual.mean() == pytest.approx(answers["ms"]["tori"], abs=SAME)


def test_every_step(case):
    _, _, found, answers = case
    result = answers["result"]
    steps = [str(step) for step in found.model.timing.steps]
    assert set(steps) == set(result["step_t_base"])
    for ours, theirs in (
        (found.model.timing.span, "step_t_base"),
        (found.model.actual, "step_t_nodelay"),
        (found.model.actual / found.model.ideal, "blocking_step_slowdown"),
    ):
        expected = [result[theirs][step] for step in steps]
        np.testing.assert_allclose(ours, expected, atol=SAME)


@pytest.mark.parametrize(
    ("part", "theirs"), [("dp", "dp_rank"), ("stage", "stage"), ("operation", "optype")]
)
def test_attribution(case, part, theirs):
    _, _, found, answers = case
    frame = {
        "dp": found.attribution.by_replica,
        "stage": found.attribution.by_stage,
        "operation": found.attribution.by_operation,
    }[part]
    ours = {str(key): value for key, value in frame.iter_rows()}
    expected = answers["result"][f"blocking_decompose_by_{theirs}"]
    assert set(ours) == set(expected)
    for key, value in expected.items():
        assert ours[key] == pytest.approx(value, abs=SAME)
    per_step = {
        (step, which): value
        for kind, which, step, value in found.attribution.per_step.iter_rows()
        if kind == part
    }
    for step, row in answers["result"][f"blocking_decompose_by_{theirs}_per_step"].items():
        for key, value in row.items():
            assert per_step[int(step), key] == pytest.approx(value, abs=SAME)


def test_verdicts(case):
    name, _, found, _ = case
    assert found.headline == HEADLINES[name]
    assert found.late == ()
    assert HEADLINES[name] in found.verdict.lower()
    assert found.rows["episodes"].is_empty()


@pytest.mark.parametrize("absolute", [False, True])
def test_shifts_and_drifts_of_every_clock_change_nothing(case, absolute):
    name, trace, _, answers = case
    rng = np.random.default_rng(7)
    ranks = trace.ranks
    shift = dict(zip(ranks, rng.uniform(-50, 50, len(ranks)), strict=True))
    drift = dict(zip(ranks, 1 + rng.uniform(-1e-4, 1e-4, len(ranks)), strict=True))
    when = {step: 20.0 * i * absolute for i, step in enumerate(trace.steps)}
    start = pl.col("start") + pl.col("step").replace_strict(when)
    skewed = trace.operations.with_columns(
        start * pl.col("rank").replace_strict(drift) + pl.col("rank").replace_strict(shift),
        pl.col("duration") * pl.col("rank").replace_strict(drift),
    )
    other = stragglers(skewed)
    assert other.headline == HEADLINES[name]
    assert other.slowdown.value == pytest.approx(answers["result"]["blocking_slowdown"], abs=1e-3)
    assert other.attribution.explained_by_last_stage == pytest.approx(answers["ms"]["Ms"], abs=1e-3)
    assert "they were aligned" in other.notes[0]


def test_phase_sums_alone_are_within_five_per_cent(case):
    name, trace, found, _ = case
    other = stragglers(phases_of(trace.operations))
    assert other.slowdown.value == pytest.approx(found.slowdown.value, rel=0.05)
    assert other.headline == HEADLINES[name]
    assert any("Only sums by phase" in note for note in other.notes)


def test_it_is_quick(case):
    _, trace, found, _ = case
    began = time.perf_counter()
    model = lay_out(trace.operations).model
    attribute(model)
    assert time.perf_counter() - began < 2.0
    began = time.perf_counter()
    found.what_if({"rank": trace.ranks[0], "to": 0.9})
    assert time.perf_counter() - began < 0.2
