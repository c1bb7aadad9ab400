"""Power and false alarms of the search for slow ranks."""

from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.diagnosis.straggling.changes import _choose, stretches
from reprolab.diagnosis.straggling.episodes import (
    EPISODES,
    PERIODIC,
    PERSISTENT,
    TRANSIENT,
    episodes,
)
from reprolab.diagnosis.straggling.excess import excess, others_median
from reprolab.diagnosis.straggling.families import FAMILIES
from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.diagnosis.straggling.spikes import binomial_tail, period, spikes, tail_value
from reprolab.diagnosis.straggling.workload import workload
from reprolab.traces.synthetic import data_parallel, lognormal, normal, student

NOISES = {"normal": normal(), "heavy tails": student(), "long right tail": lognormal()}


def detect(model):
    return episodes(excess(model, workload(model)), model.actual)


def score(marks, truth):
    found = marks.any(axis=0)
    return 2 * (found & truth).sum() / (found.sum() + truth.sum())


@pytest.mark.parametrize("name", NOISES)
def test_healthy_noise_raises_no_alarm(name):
    false = cells = 0
    for seed in range(4):
        model = lay_out(data_parallel(16, 250, noise=NOISES[name], seed=seed)).model
        found, marks = detect(model)
        assert found.filter(pl.col("kind") != TRANSIENT).is_empty()
        false, cells = false + marks.any(axis=0).sum(), cells + marks[0].size
    assert false <= 1e-3 * cells


@pytest.mark.parametrize("name", ["normal", "heavy tails"])
def test_five_per_cent_are_found_with_their_steps(name):
    rng = np.random.default_rng(5)
    scores = []
    for seed in range(8):
        rank, length = rng.integers(16), rng.integers(20, 150)
        first = rng.integers(0, 200 - length)
        slow = np.ones((16, 200))
        slow[rank, first : first + length] = 1.05
        model = lay_out(data_parallel(16, 200, noise=NOISES[name], slow=slow, seed=seed)).model
        found, marks = detect(model)
        assert found.schema == EPISODES
        assert found["rank"][0] == rank
        assert found["kind"][0] == PERSISTENT
        assert found["slower"][0] == pytest.approx(0.05, abs=0.01)
        scores.append(score(marks, slow > 1))
    assert np.mean(scores) > 0.97


def test_two_slow_stretches_of_one_rank_are_two():
    slow = np.ones((8, 300))
    slow[3, 40:90] = slow[3, 200:260] = 1.1
    found, _ = detect(lay_out(data_parallel(8, 300, slow=slow)).model)
    spans = found.sort("first_step").select("rank", "first_step", "last_step").rows()
    assert [row[0] for row in spans] == [3, 3]
    np.testing.assert_allclose([row[1:] for row in spans], [(40, 89), (200, 259)], atol=1)


def test_slow_from_the_first_step_to_the_last():
    slow = np.ones((8, 100))
    slow[5] = 1.1
    found, _ = detect(lay_out(data_parallel(8, 100, slow=slow)).model)
    row = found.row(0, named=True)
    assert (row["rank"], row["first_step"], row["last_step"]) == (5, 0, 99)


def test_of_two_ranks_the_slower_one_is_named():
    slow = np.ones((2, 100))
    slow[1, 30:] = 1.1
    found, _ = detect(lay_out(data_parallel(2, 100, slow=slow)).model)
    assert found["rank"].to_list() == [1]


def test_a_certain_but_cheap_slowness_is_below_the_gate():
    slow = np.ones((8, 2000))
    slow[5] = 1.005
    found, _ = detect(lay_out(data_parallel(8, 2000, noise=normal(0.002), slow=slow)).model)
    assert found.filter(pl.col("family") == "compute").is_empty()


def test_periodic_slowness_has_a_period():
    slow = np.ones((8, 200))
    slow[2, 7::10] = 1.6
    found, _ = detect(lay_out(data_parallel(8, 200, slow=slow)).model)
    row = found.filter(pl.col("rank") == 2).row(0, named=True)
    assert row["kind"] == PERIODIC
    assert row["period"] == 10
    assert row["steps"] == pytest.approx(20, abs=1)


def test_one_bad_step_is_transient():
    slow = np.ones((8, 200))
    slow[2, 77] = 3.0
    found, marks = detect(lay_out(data_parallel(8, 200, slow=slow)).model)
    assert found.select("rank", "kind", "first_step", "steps").rows() == [(2, TRANSIENT, 77, 1)]
    assert marks.any(axis=0).sum() == 1


def test_batches_that_are_more_work_are_nobodys_fault():
    rng = np.random.default_rng(0)
    work = rng.integers(500, 1500, (8, 200)).astype(float)
    found, _ = detect(lay_out(data_parallel(8, 200, work=work)).model)
    assert found.is_empty()
    slow = np.ones((8, 200))
    slow[4, 50:120] = 1.06
    found, marks = detect(lay_out(data_parallel(8, 200, work=work, slow=slow)).model)
    assert found["rank"][0] == 4
    assert score(marks, slow > 1) > 0.95


@pytest.mark.parametrize(("dp", "stages"), [(2, 4), (8, 2)])
def test_in_a_pipeline_other_stages_tell_how_much_work_it_was(pipeline, even, slowed, dp, stages):
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 2.0, (8, 64, 30))
    jitter = rng.normal(1, 0.01, (2, 8, 4, 64, 30))

    def seconds(name, replica, stage, microbatch, step):
        if "compute" not in name:
            return even(name)
        noise = jitter[name.startswith("f") * 1, replica, stage, microbatch, step]
        return even(name) * size[replica, microbatch, step] * noise

    frame, _ = pipeline(dp=dp, stages=stages, microbatches=6, steps=30, seconds=seconds)
    model = lay_out(frame).model
    work = workload(model)
    assert work.measure == "the other stages"
    assert work.explained > 0.9
    assert work.together > 0.95
    assert detect(model)[0].is_empty()

    nodes = model.graph.nodes
    rank = int(nodes["rank"].max())
    computes = (nodes["rank"] == rank) & nodes["operation"].str.contains("compute")
    found, marks = detect(slowed(model, computes.to_numpy(), np.arange(5, 27), 1.05))
    truth = np.zeros(marks.shape[1:], bool)
    truth[-1, 5:27] = True
    assert found["rank"].to_list() == [rank]
    assert score(marks, truth) > 0.95


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 1000))
def test_the_median_of_the_others(count, seed):
    values = np.random.default_rng(seed).integers(0, 5, (2, count, 3)).astype(float)
    found = others_median(values)
    for one in range(count):
        expected = np.median(np.delete(values, one, axis=1), axis=1)
        np.testing.assert_array_equal(found[:, one], expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.integers(1, 4))
def test_chosen_stretches_are_as_good_as_brute_force(rise, price):
    def worth(inside):
        entries = sum(b and not a for a, b in pairwise([False, *inside]))
        return sum(r for r, b in zip(rise, inside, strict=True) if b) - price * entries

    best = max(worth(some) for some in product([False, True], repeat=len(rise)))
    found = _choose(np.array(rise, float), float(price))
    inside = [any(a <= step < b for a, b in found) for step in range(len(rise))]
    assert worth(inside) == best
    assert found == sorted(found)


def test_stretches_have_exact_ends_when_the_shift_is_clear():
    beyond = np.random.default_rng(0).normal(0, 1, (20, 400))
    beyond[7, 100:160] += 6.0
    assert stretches(beyond, 1.0, 1.0) == [(7, 100, 160)]


def test_no_stretch_in_noise_of_any_kind():
    rng = np.random.default_rng(0)
    lingering = rng.normal(0, 1, (20, 600))
    for step in range(1, 600):
        lingering[:, step] += 0.6 * lingering[:, step - 1]
    noises = {
        "normal": rng.normal(0, 1, (20, 600)),
        "cauchy-like": rng.standard_t(1.5, (20, 600)),
        "skewed": rng.lognormal(0, 1, (20, 600)) - 1,
        "lingering": lingering,
    }
    for name, noise in noises.items():
        scale = 1.4826 * np.median(np.abs(np.diff(noise, axis=1))) / np.sqrt(2)
        assert stretches(noise, scale, 0.5 * scale) == [], name


def test_thousands_of_steps_take_no_time():
    import time

    beyond = np.random.default_rng(0).normal(0, 1, (64, 5000))
    beyond[3, 1000:1400] += 3
    began = time.perf_counter()
    found = stretches(beyond, 1.0, 1.0)
    spikes(beyond, 1.0, 1.0)
    assert time.perf_counter() - began < 1.0
    assert [row for row, _, _ in found] == [3]


def test_tails_are_continued():
    values = np.random.default_rng(0).pareto(2.0, 200_000) + 1
    # Of a Pareto law with shape 2, one in a million lies beyond 1000.
    assert tail_value(values, 1e-6) == pytest.approx(1000, rel=0.15)


def test_periods():
    assert period(np.array([5, 15, 25, 35])) == 10
    assert period(np.array([5, 15, 35, 45, 48, 55])) == 10
    assert period(np.array([1, 4, 20, 21, 50])) is None
    assert period(np.array([1, 2])) is None


def test_binomial_tails():
    from math import comb

    exact = sum(comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(4, 11))
    assert binomial_tail(4, 10, 0.2) == pytest.approx(exact)


def test_families_are_those_of_the_table():
    slow = np.ones((4, 60))
    slow[1, 20:50] = 1.3
    found, marks = detect(lay_out(data_parallel(4, 60, slow=slow)).model)
    assert found["family"].to_list() == ["compute"]
    assert marks.shape == (len(FAMILIES), 4, 60)
