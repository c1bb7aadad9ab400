import numpy as np
import pytest

from reprolab.diagnosis.straggling.attribution import attribute
from reprolab.diagnosis.straggling.interval import slowdown_interval
from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.diagnosis.straggling.shares import shares
from reprolab.diagnosis.straggling.whatif import what_if
from reprolab.diagnosis.straggling.workload import workload
from reprolab.traces.synthetic import data_parallel, normal


@pytest.fixture(scope="module")
def model():
    slow = np.ones((4, 50))
    slow[2, 10:30] = 1.5
    return lay_out(data_parallel(4, 50, noise=normal(0.001), slow=slow)).model


def test_a_fixed_rank_gives_its_time_back(model):
    found = what_if(model, {"rank": 2})
    # 0.18 s of computing were half as long again at 20 of 50 steps.
    assert found.saved == pytest.approx(0.09 * 20 / 50, rel=0.05)
    assert found.seconds == pytest.approx(model.ideal, rel=0.01)
    assert found.slowdown == pytest.approx(1.0, abs=0.01)
    assert (found.after <= found.before + 2e-3).all()


def test_only_the_named_steps_change(model):
    found = what_if(model, {"rank": 2, "step": range(10, 20)})
    changed = np.flatnonzero(np.abs(found.after - found.before) > 0.01)
    assert changed.tolist() == list(range(10, 20))


def test_shares_of_a_duration(model):
    halved = what_if(model, {"operation": ["forward", "backward"], "to": 0.5})
    assert halved.after[0] == pytest.approx(halved.before[0] - 0.09, rel=0.02)
    same = what_if(model, {"operation": "forward", "to": 1.0})
    np.testing.assert_allclose(same.after, same.before)


def test_families_and_several_fixes(model):
    both = what_if(model, [{"family": "compute", "to": 0.5}, {"family": "data loading", "to": 0.0}])
    one = what_if(model, {"family": "compute", "to": 0.5})
    assert both.seconds == pytest.approx(one.seconds - 0.004, rel=0.02)


def test_fixing_what_nobody_waits_for_gains_nothing(model):
    assert what_if(model, {"rank": 0, "step": range(12, 28), "to": 0.9}).saved < 1e-3


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ({"rnak": 2}, "a fix knows rank, stage, dp, operation, family, step and to; got rnak"),
        ({"rank": 9}, "there is no rank 9; known: 0, 1, 2, 3"),
        ({"operation": "bakward"}, "there is no operation 'bakward'"),
        ({"rank": 2, "to": -1}, "at least 0; got -1"),
        ({"rank": 2, "to": "fast"}, "must be 'ideal'"),
    ],
)
def test_nonsense_is_refused(model, fix, said):
    with pytest.raises(ValueError, match=said):
        what_if(model, fix)


def test_attribution_names_the_rank(model):
    split = attribute(model)
    assert split.by_rank["rank"][0] == 2
    assert split.worst == (2,)
    assert split.explained_by_worst > 0.95
    assert split.explained_by_last_stage == 0.0
    per_step = split.per_step.filter(part="rank", which="2").sort("step")["slowdown"].to_numpy()
    assert (per_step[10:30] > 1.3).all()
    assert (per_step[:10] < 1.05).all()


def test_parts_of_the_slowdown_sum_to_it(model):
    parts = shares(model, workload(model))
    assert sum(parts.values()) == pytest.approx(model.actual.mean() - model.ideal)


def test_the_interval_holds_the_slowdown_of_the_process():
    """Of many traces of one process, about 95 % of the intervals hold what the mean trace has."""
    found = []
    for seed in range(60):
        slow = np.ones((4, 40))
        slow[1] = 1 + 0.2 * np.random.default_rng(1000 + seed).random(40)
        found.append(slowdown_interval(lay_out(data_parallel(4, 40, slow=slow, seed=seed)).model))
    truth = np.mean([interval.value for interval in found])
    held = np.mean([interval.low <= truth <= interval.high for interval in found])
    assert 0.8 <= held <= 1.0
    assert all(interval.low < interval.value < interval.high for interval in found)


def test_one_step_has_no_interval():
    interval = slowdown_interval(lay_out(data_parallel(4, 1)).model)
    assert np.isnan(interval.low)
    assert "one step" in str(interval)


def test_the_interval_is_reproducible(model):
    assert slowdown_interval(model) == slowdown_interval(model)
