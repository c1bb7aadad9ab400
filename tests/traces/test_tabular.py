import polars as pl
import pytest

from reprolab.errors import TraceError
from reprolab.traces import open_trace
from reprolab.traces.synthetic import data_parallel


def test_documented_columns_come_back_as_they_were(tmp_path):
    frame = data_parallel(2, 3)
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    assert open_trace(tmp_path / "t.parquet").operations.equals(frame)
    found = open_trace(tmp_path / "t.csv").operations
    assert found.schema == frame.schema
    assert found.drop("start", "duration").equals(frame.drop("start", "duration"))
    assert (found["start"] - frame["start"]).abs().max() < 1e-12


def test_published_columns_are_known_by_their_names(tmp_path):
    pl.DataFrame(
        {
            "dp_rank": [0],
            "stage": [1],
            "rank": [1],
            "step": [7],
            "optype": ["forward-compute"],
            "start_ts": [0.5],
            "duration": [0.25],
            "seq_id": [2],
            "mc": [0],
            "mb_id": [3],
            "gmc": [1],
        }
    ).write_parquet(tmp_path / "trace-X.parquet")
    (tmp_path / "meta-X.yaml").write_text("trial_name: X\nworld_size: 128\n")
    trace = open_trace(tmp_path / "trace-X.parquet")
    assert trace.world_size == 128
    row = trace.operations.row(0, named=True)
    assert (row["operation"], row["start"], row["sequence"]) == ("forward-compute", 0.5, 2)
    assert (row["dp"], row["stage"], row["part"], row["microbatch"]) == (0, 1, 0, 3)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_file_that_is_no_table_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(TraceError, match=r"not a .* table"):
        open_trace(tmp_path / name)


def test_a_truncated_table_is_an_error(tmp_path):
    path = tmp_path / "t.parquet"
    data_parallel(2, 30).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceError, match="not a parquet table, or it is cut short"):
        open_trace(path)


def test_left_out_rows_are_noted(tmp_path):
    frame = data_parallel(2, 3).with_columns(
        pl.when(pl.col("operation") == "data").then(-1.0).otherwise("duration").alias("duration")
    )
    frame.write_parquet(tmp_path / "t.parquet")
    trace = open_trace(tmp_path / "t.parquet")
    assert "6 of 30 operations have a negative" in trace.notes[0]
