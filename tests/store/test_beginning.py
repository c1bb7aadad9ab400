import json
import threading

import pytest

from reprolab.errors import LabError, RankTimeout, RunExists, RunNotFound
from reprolab.policy import Policy
from reprolab.store import open_lab, open_run, paths


def test_a_run_is_whole_from_its_first_moment(tmp_path, make):
    writer = make.begin(
        tmp_path / "new" / "lab",
        "a",
        config={"lr": 1e-3, "name": "nan"},
        mesh={"dp": 1},
        policy=Policy(every=3),
        parent=("base", 40),
        code={"commit": "abc"},
    )
    assert (writer.rank, writer.attempt, writer.path) == (0, 0, tmp_path / "new" / "lab" / "a")
    run = open_run(writer.path)
    assert run.config == {"lr": 1e-3, "name": "nan"}
    assert run.parent == ("base", 40)
    assert run.policy["every"] == 3
    assert run.identity["mesh"] == {"dp": 1}
    (attempt,) = run.attempts
    assert (attempt.index, attempt.world_size, attempt.mesh) == (0, 1, {"dp": 1})
    assert attempt.environments == {0: {"host": "here"}}
    assert attempt.code == {"commit": "abc"}
    assert run.checkpoints == []
    assert list(run.facts()) == []
    writer.close()
    assert [entry.name for entry in (tmp_path / "new" / "lab").iterdir()] == ["a"]


def test_every_rank_hears_of_the_run_and_brings_its_environment(tmp_path, make, on_ranks):
    def work(seat):
        writer = make.begin(tmp_path, rendezvous=seat, environment={"host": seat.rank})
        writer.close()
        return writer.rank, writer.attempt

    assert on_ranks(3, work) == [(0, 0), (1, 0), (2, 0)]
    (attempt,) = open_run(tmp_path / "run").attempts
    assert attempt.environments == {rank: {"host": rank} for rank in range(3)}
    assert attempt.world_size == 3


def test_a_second_recorder_of_a_name_fails_on_every_rank(tmp_path, make, on_ranks):
    make.begin(tmp_path).close()
    before = sorted(tmp_path.rglob("*"))
    for failure in on_ranks(3, lambda seat: make.begin(tmp_path, rendezvous=seat)):
        assert isinstance(failure, RunExists)
        assert "choose another" in str(failure)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_recorders_that_race_one_wins(tmp_path, make):
    barrier = threading.Barrier(6)
    found = []

    def race(number):
        barrier.wait()
        try:
            writer = make.begin(tmp_path, config={"number": number})
            found.append(number)
            writer.close()
        except RunExists:
            pass

    threads = [threading.Thread(target=race, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert open_run(tmp_path / "run").config == {"number": found[0]}
    assert open_lab(tmp_path).names() == ["run"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a\0b"])
def test_a_hostile_name_fails_on_every_rank_and_leaves_nothing(tmp_path, make, on_ranks, name):
    lab = tmp_path / "lab"
    for failure in on_ranks(2, lambda seat: make.begin(lab, name, rendezvous=seat)):
        assert isinstance(failure, LabError)
        assert "a run's name" in str(failure)
    assert list(tmp_path.iterdir()) == []


def test_a_lab_that_is_a_file_fails_on_every_rank(tmp_path, make, on_ranks):
    (tmp_path / "lab").touch()
    for failure in on_ranks(2, lambda seat: make.begin(tmp_path / "lab", rendezvous=seat)):
        assert isinstance(failure, LabError)
        assert "FileExistsError" in str(failure)


@pytest.mark.parametrize("sick", [0, 1])
def test_what_cannot_be_written_down_fails_on_every_rank(tmp_path, make, on_ranks, sick):
    def work(seat):
        environment = {"gpu": object()} if seat.rank == sick else {}
        return make.begin(tmp_path, rendezvous=seat, environment=environment)

    for failure in on_ranks(2, work):
        assert isinstance(failure, LabError)
        assert failure.where["rank"] == sick
        assert "record.gpu" in str(failure)
    assert list(tmp_path.iterdir()) == []

    with pytest.raises(LabError, match=r"config\.model"):
        make.begin(tmp_path, config={"model": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_does_not_see_the_lab_fails_on_every_rank(tmp_path, make, on_ranks):
    def work(seat):
        return make.begin(tmp_path / str(seat.rank), rendezvous=seat)

    for failure in on_ranks(2, work):
        assert isinstance(failure, LabError)
        assert failure.where["rank"] == 1
        assert "FileNotFoundError" in str(failure)
    assert open_lab(tmp_path / "0").names() == []


def test_a_rank_that_does_not_come_is_named(tmp_path, make, on_ranks):
    def work(seat):
        return make.begin(tmp_path, rendezvous=seat, timeout=0.2)

    for failure in on_ranks(3, work, ranks=[0, 2]):
        assert isinstance(failure, RankTimeout)
        assert failure.where["rank"] == [1]
    assert list(tmp_path.iterdir()) == []


def test_another_attempt_has_its_own_mesh_and_files(tmp_path, make, on_ranks):
    first = make.begin(tmp_path)
    first.fact("note", 1, text="first")
    first.close()

    def work(seat):
        writer = make.again(tmp_path, rendezvous=seat, mesh={"dp": 2})
        writer.fact("note", 2, text="second")
        writer.close()
        return writer.attempt

    assert on_ranks(2, work) == [1, 1]
    run = open_run(tmp_path / "run")
    assert [attempt.mesh for attempt in run.attempts] == [{"dp": 1}, {"dp": 2}]
    assert [(f["attempt"], f["rank"], f["text"]) for f in run.facts()] == [
        (0, 0, "first"),
        (1, 0, "second"),
        (1, 1, "second"),
    ]
    assert [fact["text"] for fact in run.facts(rank=1)] == ["second"]
    assert run.ranks == [0, 1]


def test_another_attempt_removes_what_was_never_committed(tmp_path, make):
    writer = make.begin(tmp_path)
    writer.checkpoint(3, {})
    writer.close()
    (paths.checkpoint(tmp_path / "run", 6) / "params").mkdir(parents=True)
    make.again(tmp_path).close()
    assert paths.checkpoint(tmp_path / "run", 3).is_dir()
    assert not paths.checkpoint(tmp_path / "run", 6).exists()


def test_an_attempt_of_no_run_fails(tmp_path, make):
    with pytest.raises(RunNotFound, match="no run to go on with"):
        make.again(tmp_path)
    make.begin(tmp_path).close()
    identity = paths.identity(tmp_path / "run")
    identity.write_text(json.dumps({"format": 1}))
    with pytest.raises(LabError, match="damaged"):
        make.again(tmp_path)
