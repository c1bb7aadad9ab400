import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling.lateness import LATENESS, by_rank, heat, lateness
from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.tables.operations import conform
from reprolab.traces.synthetic import data_parallel


def one_meeting(role, rows):
    """One collective; rows are rank, start, duration."""
    frame = pl.DataFrame(
        {
            "rank": [row[0] for row in rows],
            "step": 0,
            "operation": "meet",
            "role": role,
            "start": [float(row[1]) for row in rows],
            "duration": [float(row[2]) for row in rows],
            "group": "meet",
        }
    )
    return lay_out(conform(frame)[0]).model


def test_the_last_to_come_waits_least():
    model = one_meeting("barrier", [(0, 0.0, 5.0), (1, 4.0, 1.0), (2, 1.0, 4.0)])
    found = lateness(model, comparable=True).sort("rank")
    assert found.schema == LATENESS
    assert found["lag"].to_list() == [0.0, 4.0, 1.0]
    assert found["wait"].to_list() == [4.0, 0.0, 3.0]
    assert found["last"].to_list() == [False, True, False]
    assert found["by"].unique().to_list() == ["durations"]


def test_durations_need_no_clock():
    model = one_meeting("barrier", [(0, 70.0, 5.0), (1, -4.0, 1.0), (2, 1e6, 4.0)])
    found = lateness(model, comparable=False).sort("rank")
    assert found["lag"].to_list() == [0.0, 4.0, 1.0]


def test_where_some_leave_early_starts_tell():
    """The root of a broadcast came last and left at once; its short duration is no evidence."""
    model = one_meeting("exchange", [(0, 3.0, 0.1), (1, 0.0, 3.2), (2, 5.0, 0.2)])
    found = lateness(model, comparable=True).sort("rank")
    assert found["by"].unique().to_list() == ["starts"]
    assert found["lag"].to_list() == [3.0, 0.0, 5.0]
    assert found.filter("last")["rank"].to_list() == [2]


def test_without_clocks_such_a_collective_says_nothing():
    model = one_meeting("exchange", [(0, 3.0, 0.1), (1, 0.0, 3.2)])
    found = lateness(model, comparable=False)
    assert found["lag"].is_nan().all()
    assert not found["last"].any()


def test_sums_by_rank_and_step():
    slow = np.ones((4, 10))
    slow[2] = 1.5
    model = lay_out(data_parallel(4, 10, slow=slow)).model
    found = lateness(model, comparable=True)
    ranked = by_rank(found)
    assert ranked["rank"][0] == 2
    assert ranked["times_last"].to_list() == [10, 0, 0, 0]
    assert ranked["collectives"].to_list() == [10] * 4
    cells = heat(found)
    assert cells.shape == (40, 3)
    assert cells.filter(pl.col("rank") == 2)["lag"].sum() == pytest.approx(ranked["lag"][0])
