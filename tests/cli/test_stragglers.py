import json

import numpy as np
import polars as pl
import pytest

from reprolab.cli import main
from reprolab.cli.stragglers import fix_of
from reprolab.traces.synthetic import data_parallel


@pytest.fixture
def trace(tmp_path):
    slow = np.ones((4, 60))
    slow[2, 20:50] = 1.3
    path = tmp_path / "trace.parquet"
    data_parallel(4, 60, slow=slow).write_parquet(path)
    return path


@pytest.fixture
def healthy(tmp_path):
    path = tmp_path / "healthy.parquet"
    data_parallel(4, 60).write_parquet(path)
    return path


def test_the_verdict_is_printed(trace, capsys):
    assert main(["stragglers", str(trace)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Rank 2 is late: slow computation")
    assert "device-hours" in said
    assert "note: The ranks' clocks agree" in said


def test_nothing_wrong_is_exit_code_0(healthy, capsys):
    assert main(["stragglers", str(healthy)]) == 0
    assert "No straggler" in capsys.readouterr().out


def test_everything_at_once(trace, capsys):
    words = ["stragglers", str(trace), "--rows", "culprits", "--rows", "batches", "--plan"]
    words += ["--watts", "700", "--co2", "0.4", "--fix", "rank=2", "--fix", "operation=data,to=0.5"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "kWh" in said
    assert "kg CO2" in said
    assert "what if rank=2 and operation=data,to=0.5: " in said
    assert "plan: the gain of" in said
    assert "none recorded" in said


def test_json(trace, capsys):
    words = ["stragglers", str(trace), "--json", "--rows", "lateness", "--fix", "rank=2", "--plan"]
    assert main(words) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["late"] == [2]
    assert document["what_if"]["share"] > 0.05
    assert len(document["rows_lateness"]) == 4 * 60
    assert document["plan"]["switch"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fix", "rank=9"], "there is no rank 9"),
        (["--fix", "rank"], "a fix is KEY=VALUE"),
        (["--co2", "0.4"], "needs the power"),
    ],
)
def test_nonsense_is_exit_code_2(trace, capsys, words, said):
    assert main(["stragglers", str(trace), *words]) == 2
    assert said in capsys.readouterr().err


def test_what_is_no_trace_is_exit_code_2(tmp_path, capsys):
    assert main(["stragglers", str(tmp_path / "missing")]) == 2
    assert "there is no such" in capsys.readouterr().err


def test_names_from_a_file_do_not_reach_the_terminal_raw(tmp_path, capsys):
    path = tmp_path / "evil.parquet"
    frame = data_parallel(2, 10).with_columns(
        pl.col("operation").str.replace("data", "da\x1b[31mta", literal=True)
    )
    frame.write_parquet(path)
    main(["stragglers", str(path), "--rows", "episodes", "--rows", "lateness"])
    assert "\x1b" not in capsys.readouterr().out


def test_import_writes_a_table_that_opens(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["import", str(trace)]) == 0
    assert "ranks      4" in capsys.readouterr().out
    target = tmp_path / "trace.operations.parquet"
    assert pl.read_parquet(target).equals(pl.read_parquet(trace))
    assert main(["import", str(trace)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["import", str(trace), "--force"]) == 0
    assert main(["stragglers", str(target)]) == 1


@pytest.mark.parametrize("text", ["rank", "=3", "rank=", "rank=3,,"])
def test_a_fix_needs_a_key_and_a_value(text):
    with pytest.raises(ValueError, match="a fix is KEY=VALUE"):
        fix_of(text)
