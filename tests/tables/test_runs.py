"""The runs of a lab: what is there, and what is wrong with it."""

import math

import pytest

from reprolab.store import open_lab
from reprolab.tables import RUNS, runs


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "lab").mkdir()
    return tmp_path / "lab"


def test_an_empty_lab_has_an_empty_table(lab):
    found = runs(open_lab(lab))
    assert found.is_empty()
    assert found.schema == RUNS


def test_one_row_a_run(write, lab):
    run = write("b")
    write("a", close=False)
    write("c", facts=False)
    found = runs(open_lab(lab))
    assert found.schema == RUNS
    assert found["run"].to_list() == ["a", "b", "c"]
    assert found["state"].to_list() == ["unfinished", "finished", "finished"]
    row = found.row(1, named=True)
    assert (row["attempts"], row["world_size"], row["ranks"]) == (1, 1, 1)
    assert (row["steps"], row["last_step"], row["checkpoints"]) == (2, 1, 1)
    assert (row["first_loss"], row["last_loss"]) == (2.5, 1.0)
    assert row["problem"] is None
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert row["bytes"] == size
    assert found["first_loss"].to_list()[2] is None


def test_a_damaged_run_does_not_hide_the_others(write, lab):
    for name in ("a", "b", "c"):
        run = write(name)
        if name == "a":
            (run.path / "run.json").write_text("{}")
        if name == "b":
            path = run.path / "attempts" / "000" / "ledger" / "rank-00000.jsonl"
            path.write_bytes(path.read_bytes().replace(b"forward", b"forwarp", 1))
    found = runs(open_lab(lab))
    assert found["state"].to_list() == ["damaged", "damaged", "finished"]
    assert "run.json" in found["problem"][0]
    assert "line 1" in found["problem"][1]
    assert found["steps"].to_list() == [None, 2, 2]
    assert not math.isnan(found["last_loss"][2])
