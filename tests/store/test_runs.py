import shutil

import pytest

from reprolab.errors import DamagedData, FormatTooNew, LabError, LabNotFound, RunNotFound
from reprolab.store import open_lab, open_run, paths, records


def test_a_missing_lab(tmp_path):
    with pytest.raises(LabNotFound, match="no such folder"):
        open_lab(tmp_path / "lab")


def test_a_file_is_no_lab(tmp_path):
    (tmp_path / "lab").touch()
    with pytest.raises(LabError, match="this is a file"):
        open_lab(tmp_path / "lab")
    with pytest.raises(RunNotFound, match="this is a file"):
        open_run(tmp_path / "lab")


def test_an_empty_lab_is_fine(tmp_path):
    lab = open_lab(tmp_path)
    assert (lab.names(), list(lab), len(lab)) == ([], [], 0)
    with pytest.raises(RunNotFound, match="runs of this lab: none"):
        lab["a"]


def test_a_lab_lists_its_runs_and_nothing_else(tmp_path, make):
    for name in ("b", "a"):
        make.begin(tmp_path, name).close()
    (tmp_path / "half").mkdir()
    (tmp_path / ".new-x").mkdir()
    (tmp_path / ".new-x" / "run.json").touch()
    (tmp_path / "notes.txt").touch()
    lab = open_lab(tmp_path)
    assert lab.names() == ["a", "b"]
    assert [run.name for run in lab] == ["a", "b"]
    assert "a" in lab
    assert "half" not in lab
    assert lab["a"].path == tmp_path / "a"
    with pytest.raises(RunNotFound, match=r"no run\.json.*runs of this lab: a, b"):
        lab["half"]
    with pytest.raises(RunNotFound, match="no such folder"):
        lab["c"]


@pytest.mark.parametrize("name", ["..", "../other", "a/b", ""])
def test_a_name_cannot_leave_the_lab(tmp_path, make, name):
    make.begin(tmp_path / "lab").close()
    make.begin(tmp_path, "other").close()
    with pytest.raises(LabError, match="a run's name"):
        open_lab(tmp_path / "lab")[name]


def test_lab_and_run_are_told_apart(tmp_path, make):
    make.begin(tmp_path).close()
    with pytest.raises(LabError, match="this is a run, not a lab"):
        open_lab(tmp_path / "run")
    with pytest.raises(RunNotFound, match="this is a lab; name one of its runs"):
        open_run(tmp_path)
    with pytest.raises(RunNotFound, match="no such folder"):
        open_run(tmp_path / "other")


def test_a_newer_run_says_so(tmp_path, make):
    make.begin(tmp_path).close()
    path = paths.identity(tmp_path / "run")
    record = records.read_file(path)
    path.write_bytes(records.write_text({**record, "format": records.FORMAT + 1}))
    with pytest.raises(FormatTooNew, match=r"run run.*run\.json.*install a newer reprolab"):
        open_run(tmp_path / "run")


def test_a_damaged_run_does_not_hide_the_others(tmp_path, make):
    for name in ("a", "b"):
        make.begin(tmp_path, name).close()
    path = paths.identity(tmp_path / "a")
    path.write_bytes(path.read_bytes().replace(b'"lr"', b'"Lr"'))
    lab = open_lab(tmp_path)
    assert lab.names() == ["a", "b"]
    assert lab["b"].name == "b"
    with pytest.raises(DamagedData, match=r"run a.*run\.json"):
        lab["a"]


def test_a_damaged_attempt_is_named(tmp_path, make):
    make.begin(tmp_path).close()
    path = paths.attempt_file(tmp_path / "run", 0)
    path.write_bytes(path.read_bytes().replace(b"here", b"hexe"))
    run = open_run(tmp_path / "run")
    with pytest.raises(DamagedData, match=r"run run.*attempt\.json"):
        _ = run.attempts


def test_missing_ranks_are_those_that_left_nothing(tmp_path, make, on_ranks):
    def work(seat):
        writer = make.begin(tmp_path, rendezvous=seat)
        writer.fact("note", 0, text=str(seat.rank))
        writer.close()

    on_ranks(4, work)
    run = open_run(tmp_path / "run")
    assert (run.ranks, run.missing_ranks) == ([0, 1, 2, 3], [])
    for rank in (1, 3):
        paths.ledger(run.path, 0, rank).unlink()
        shutil.rmtree(paths.fingerprints(run.path, rank))
    assert (run.ranks, run.missing_ranks) == ([0, 2], [1, 3])
    assert [fact["rank"] for fact in run.facts()] == [0, 2]
    assert list(run.facts(rank=1)) == []


def test_a_run_being_written_is_read(tmp_path, make):
    writer = make.begin(tmp_path)
    run = open_run(tmp_path / "run")
    for step in range(3):
        writer.fact("metric", step, name="loss", value=step)
        writer.fingerprint(step, "params", make.layout(), make.fingerprint(1, step))
        assert len(list(run.facts())) == step
        writer.flush()
        assert len(list(run.facts())) == step + 1
        assert run.fingerprints(0).steps("params").tolist() == list(range(step + 1))
        assert run.checkpoints == list(range(step))
        writer.checkpoint(step, {})
    writer.close()
    assert run.checkpoints == [0, 1, 2]
    assert run.fingerprints(0).steps("params").tolist() == [0, 1, 2]


def test_a_damaged_ledger_line_is_named_with_its_run(tmp_path, make):
    writer = make.begin(tmp_path)
    for step in range(3):
        writer.fact("note", step, text="x")
    writer.close()
    path = paths.ledger(tmp_path / "run", 0, 0)
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":7'))
    with pytest.raises(DamagedData, match=r"run run.*rank-00000\.jsonl.*line 2"):
        list(open_run(tmp_path / "run").facts())


def test_reading_needs_no_relative_place(tmp_path, make, monkeypatch):
    make.begin(tmp_path).close()
    monkeypatch.chdir(tmp_path / "run")
    assert open_run(".").name == "run"
    assert open_lab("..").names() == ["run"]
