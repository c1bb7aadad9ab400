import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.policy.balance import counts, plan, weights

SECONDS = st.lists(
    st.one_of(st.floats(0.1, 3.0), st.sampled_from([1.0, 2.0])), min_size=1, max_size=4
)


@settings(max_examples=500, deadline=None)
@given(SECONDS, st.data())
def test_counts_are_as_good_as_brute_force(seconds, data):
    ranks = len(seconds)
    fixed = data.draw(st.lists(st.floats(0, 3), min_size=ranks, max_size=ranks))
    least = data.draw(st.integers(0, 1))
    total = data.draw(st.integers(max(1, ranks * least), 9))
    found = counts(np.array(seconds), np.array(fixed), total, least=least)
    best = min(
        max(b * t + c for b, t, c in zip(some, seconds, fixed, strict=True))
        for some in itertools.product(range(least, total + 1), repeat=ranks)
        if sum(some) == total
    )
    assert found.sum() == total
    assert found.min() >= least
    assert (found * seconds + fixed).max() == pytest.approx(best, rel=1e-12)


def test_limits_hold():
    found = counts(np.array([1.0, 10.0, 10.0]), np.zeros(3), 12, most=np.array([5, 6, 6]))
    assert found[0] == 5
    assert found.sum() == 12


def test_equal_ranks_get_equal_counts():
    assert counts(np.ones(8), np.zeros(8), 64).tolist() == [8] * 8


@pytest.mark.parametrize(
    ("seconds", "fixed", "total", "least", "most"),
    [
        ([1.0, 0.0], [0.0, 0.0], 4, 1, None),
        ([1.0, np.nan], [0.0, 0.0], 4, 1, None),
        ([1.0, 1.0], [0.0, -1.0], 4, 1, None),
        ([1.0, 1.0], [0.0], 4, 1, None),
        ([1.0, 1.0], [0.0, 0.0], 1, 1, None),
        ([1.0, 1.0], [0.0, 0.0], 9, 1, 4),
        ([], [], 1, 1, None),
    ],
)
def test_nonsense_is_refused(seconds, fixed, total, least, most):
    with pytest.raises(ValueError, match=r"must be|cannot be"):
        counts(np.array(seconds), np.array(fixed), total, least=least, most=most)


def test_a_large_job_is_planned_at_once():
    rng = np.random.default_rng(0)
    seconds, fixed = rng.uniform(0.9, 1.2, 1024), rng.uniform(0, 1, 1024)
    began = time.perf_counter()
    found = counts(seconds, fixed, 16384)
    assert time.perf_counter() - began < 0.1
    finish = found * seconds + fixed
    # Optimal: moving any microbatch to the rank that would finish it first gains nothing.
    assert (finish + seconds).min() >= finish.max()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5))
def test_weights_keep_the_mean_gradient(shares):
    rng = np.random.default_rng(sum(shares))
    gradients = [rng.standard_normal((share, 3)) for share in shares]
    local = np.array([some.mean(axis=0) for some in gradients])
    averaged = (weights(np.array(shares))[:, None] * local).mean(axis=0)
    np.testing.assert_allclose(averaged, np.concatenate(gradients).mean(axis=0))


def test_equal_shares_weigh_exactly_one():
    assert (weights(np.full(7, 3)) == 1.0).all()


SLOW = np.array([1.0, 1.0, 1.0, 2.0])


def test_a_plan_says_what_it_gains():
    found = plan(SLOW, np.zeros(4), np.full(4, 7), horizon=100, cost=10.0)
    assert found.switch
    assert found.before == 14.0
    assert found.after == (found.counts * SLOW).max() == 8.0
    assert found.gain == 6.0
    assert found.counts.sum() == 28


@pytest.mark.parametrize(
    ("seconds", "horizon", "cost", "why"),
    [(SLOW, 10, 100.0, "do not pay"), (np.ones(4), 100, 0.0, "below")],
)
def test_a_plan_that_does_not_pay_changes_nothing(seconds, horizon, cost, why):
    found = plan(seconds, np.zeros(4), np.full(4, 7), horizon=horizon, cost=cost)
    assert not found.switch
    assert found.counts.tolist() == [7] * 4
    assert (found.weights == 1).all()
    assert found.gain == 0
    assert why in found.reason


def test_a_planned_rank_does_not_flap():
    """Once the plan is in place, the same measurements ask for no other one."""
    first = plan(SLOW, np.zeros(4), np.full(4, 7))
    again = plan(SLOW, np.zeros(4), first.counts)
    assert not again.switch
