import polars as pl
import pytest

from reprolab.errors import TraceError
from reprolab.tables.operations import OPERATIONS, PHASES, conform, phases_of, role_of

LEAST = {
    "rank": [1, 0, 0],
    "step": [0, 0, 0],
    "operation": ["forward-compute", "all-reduce", "forward-compute"],
    "start": [0.0, 2.0, 0.0],
    "duration": [1.0, 0.5, 2.0],
}


def test_the_rest_of_the_columns_follows():
    frame, notes = conform(pl.DataFrame(LEAST))
    assert frame.schema == OPERATIONS
    assert notes == []
    assert frame["rank"].to_list() == [0, 0, 1]
    assert frame["role"].to_list() == ["work", "barrier", "work"]
    assert frame["dp"].to_list() == [0, 0, 1]
    assert frame["stage"].to_list() == [0, 0, 0]
    assert frame["sequence"].to_list() == [0, 0, 0]


def test_sequence_numbers_count_by_start():
    frame = pl.DataFrame(
        {"rank": 0, "step": 0, "operation": "f", "start": [3.0, 1.0, 2.0], "duration": 0.1}
    )
    found, _ = conform(frame)
    assert found["start"].to_list() == [1.0, 2.0, 3.0]
    assert found["sequence"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), None])
def test_rows_without_a_real_duration_are_left_out_and_said(bad):
    frame, notes = conform(pl.DataFrame(LEAST | {"duration": [1.0, bad, 2.0]}))
    assert len(frame) == 2
    assert len(notes) == 1
    assert "1 of 3" in notes[0]
    assert "all-reduce, rank 0, step 0" in notes[0]


def test_zero_is_a_duration():
    frame, notes = conform(pl.DataFrame(LEAST | {"duration": [0.0, 0.0, 0.0]}))
    assert len(frame) == 3
    assert notes == []


def test_a_missing_column_is_named():
    with pytest.raises(TraceError, match="start missing, found rank, step, operation, duration"):
        conform(pl.DataFrame(LEAST).drop("start"), source="x.csv")


def test_a_wrong_type_is_an_error():
    with pytest.raises(TraceError, match="wrong type"):
        conform(pl.DataFrame(LEAST | {"start": ["a", "b", "c"]}))


def test_nothing_usable_is_an_error():
    with pytest.raises(TraceError, match="no usable operation"):
        conform(pl.DataFrame(LEAST | {"duration": [-1.0, -1.0, -1.0]}))


def test_unknown_columns_are_dropped():
    frame, _ = conform(pl.DataFrame(LEAST | {"colour": ["red"] * 3}))
    assert frame.schema == OPERATIONS


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("grads-reduce-scatter", "barrier"),
        ("params_all_gather", "barrier"),
        ("AllReduce", "barrier"),
        ("optimizer-clip-main-grad", "barrier"),
        ("broadcast", "exchange"),
        ("all-to-all", "exchange"),
        ("forward-send", "send"),
        ("backward-recv", "recv"),
        ("forward-compute", "work"),
        ("data", "work"),
    ],
)
def test_names_tell_roles(name, role):
    assert role_of(name) == role


def test_phases_are_sums():
    frame, _ = conform(pl.DataFrame(LEAST | {"rank": [0, 0, 0]}))
    phases = phases_of(frame)
    assert phases.schema == PHASES
    row = phases.filter(pl.col("phase") == "forward-compute").row(0, named=True)
    assert row["seconds"] == 3.0
    assert row["operations"] == 2
