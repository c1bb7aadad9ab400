import numpy as np
import polars as pl
import pytest

from reprolab.tables.operations import OPERATIONS
from reprolab.traces.synthetic import data_parallel, lognormal, normal, student


def test_ranks_leave_the_reduction_together():
    frame = data_parallel(4, 20)
    assert frame.schema == OPERATIONS
    met = frame.filter(pl.col("operation") == "reduce").with_columns(
        (pl.col("start") + pl.col("duration")).alias("end")
    )
    ends = met.group_by("step").agg(pl.col("end").max() - pl.col("end").min())
    assert ends["end"].max() < 1e-9
    assert met["duration"].min() > 0


def test_a_ranks_operations_follow_each_other():
    frame = data_parallel(3, 20).sort("rank", "start")
    end = frame["start"] + frame["duration"]
    same = frame["rank"][1:] == frame["rank"][:-1]
    gap = (frame["start"][1:] - end[:-1]).filter(same)
    assert gap.abs().max() < 1e-9


def test_slow_ranks_are_slow_and_work_is_recorded():
    slow = np.ones((2, 50))
    slow[1] = 1.5
    work = np.full((2, 50), 100.0)
    frame = data_parallel(2, 50, slow=slow, work=work)
    forward = frame.filter(pl.col("operation") == "forward")
    mean = forward.group_by("rank").agg(pl.col("duration").mean()).sort("rank")["duration"]
    assert mean[1] / mean[0] == pytest.approx(1.5, rel=0.02)
    assert forward["tokens"].unique().to_list() == [100]


@pytest.mark.parametrize("noise", [normal(), student(), lognormal()])
def test_noise_is_about_one(noise):
    drawn = noise(np.random.default_rng(0), (1000,))
    assert np.median(drawn) == pytest.approx(1, abs=0.02)
    assert drawn.min() > 0
