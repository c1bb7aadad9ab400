"""What two runs do not share is said, and the rest is compared."""

import numpy as np
import pytest

from reprolab.comparison import compare
from reprolab.errors import DamagedData, NothingToCompare


def nudge(name):
    def act(tensors):
        tensors[name].reshape(-1).view(np.uint32)[0] ^= 8

    return act


def said(found, *words):
    notes = " | ".join(found.notes)
    for word in words:
        assert word in notes
    return True


def test_another_world_size_leaves_what_all_ranks_hold_alike(sound, train):
    found = compare(sound, train("wide", ranks=4))
    assert said(found, "a ran on 2 ranks and b on 4", "only what all ranks hold alike")
    assert found.streams == ["params", "optimizer", "grads", "grads_used"]
    assert (found.first.step, found.first.stream) == (0, "grads")
    assert "rank 0 of a with rank 0 of b" in found.verdict
    # The data and what follows from it were not compared, so they stay in question.
    assert "the loading of the data, the forward pass, the backward pass" in found.verdict
    assert "cannot be ruled out" in found.verdict


def test_a_longer_run_is_compared_as_far_as_both_go(sound, train):
    found = compare(sound, train("longer", steps=9))
    assert found.same
    assert found.steps.tolist() == list(range(7))
    assert said(found, "only b recorded steps 6-8 (batch", "7-9 (")


def test_other_steps_recorded_leave_those_in_common(sound, train, at):
    act = at(3, "params", (0, 1), nudge("w1"))
    found = compare(sound, train("rare", every=2, change=act))
    assert found.first.step == 4
    assert found.first.where == "between steps 2 and 4"
    assert "one of the steps 2 to 3" in found.verdict
    assert said(found, "only a recorded steps 1, 3, 5 (")


def test_a_stream_that_one_side_lacks_is_named_and_not_ruled_out(sound, train, at):
    streams = ("params", "optimizer", "loss", "grads")
    act = at(2, "grads_local", (0, 1), nudge("w1"))
    found = compare(sound, train("few", streams=streams, change=act))
    assert said(found, "only a recorded rng, buffers, batch, grads_local and grads_used")
    assert (found.first.step, found.first.stream) == (2, "grads")
    assert "the backward pass and the reduction" in found.verdict
    assert "the states of the random generators, the buffers and the batches were not" in (
        found.verdict
    )


def test_a_rank_without_records_is_named(sound, train):
    short = train("short", close=True)
    for kind in ("ledger", "journal"):
        for file in (short.path / "attempts" / "000" / kind).glob("rank-00001*"):
            file.unlink()
    group = short.path / "fingerprints" / "rank-00001.zarr"
    group.rename(short.path / "elsewhere")
    found = compare(sound, short)
    assert found.same
    assert found.ranks == [0]
    assert said(found, "b (short) has no records of rank 1")
    assert "rank 1" in found.verdict


def test_a_run_that_is_still_being_written_or_crashed_is_compared(sound, train, at):
    act = at(3, "loss", (1,), nudge("loss"))
    found = compare(sound, train("open", change=act))
    assert (found.first.step, found.first.stream, found.first.rank) == (3, "loss", 1)
    assert said(found, "b (open) is unfinished on ranks 0-1")


def test_how_a_run_ended_is_said(sound, train):
    run = train("failed", close=True, reason="ValueError: no more data")
    found = compare(sound, run)
    assert found.same
    assert said(found, "b (failed) ended early, on ranks 0-1: ValueError: no more data")
    assert "ValueError" in found.verdict
    assert compare(sound, sound).notes == []


def test_a_torn_journal_costs_its_last_record(sound, train):
    crashed = train("crashed")
    journal = crashed.path / "attempts" / "000" / "journal" / "rank-00001.bin"
    journal.write_bytes(journal.read_bytes()[:-40])
    found = compare(sound, crashed)
    assert found.same
    assert said(found, "only a recorded steps 6")


def test_a_damaged_ledger_costs_what_it_holds(sound, train):
    spoiled = train("spoiled")
    ledger = spoiled.path / "attempts" / "000" / "ledger" / "rank-00001.jsonl"
    text = ledger.read_bytes()
    ledger.write_bytes(text[:200] + bytes([text[200] ^ 1]) + text[201:])
    found = compare(sound, spoiled)
    assert found.same
    assert said(found, "damaged and skipped", "rank-00001.jsonl")
    assert found.losses.filter(found.losses["side"] == "b")["rank"].unique().to_list() == [0]
    assert "1 damaged record could not be read and was skipped" in found.verdict


@pytest.mark.parametrize("ranks", [[1], [0, 1]])
def test_damaged_fingerprints_cost_what_cannot_be_read(sound, train, at, ranks):
    spoiled = train("spoiled", close=True, change=at(3, "loss", (0, 1), nudge("loss")))
    for rank in ranks:
        chunks = spoiled.path / "fingerprints" / f"rank-{rank:05d}.zarr" / "loss" / "tensor_digest"
        for chunk in chunks.glob("c.*"):
            data = bytearray(chunk.read_bytes())
            data[5] ^= 1
            chunk.write_bytes(bytes(data))
    found = compare(sound, spoiled)
    assert (found.first.step, found.first.stream, found.first.ranks) == (3, "loss", (0, 1))
    assert found.first.tensor == (None if ranks == [0, 1] else "loss")
    assert found.rows.filter(found.rows["stream"] == "loss").height == 2 - len(ranks)
    assert said(found, "damaged and skipped")


def test_a_damaged_run_record_is_an_error(sound, train):
    spoiled = train("spoiled")
    record = spoiled.path / "run.json"
    record.write_bytes(record.read_bytes().replace(b"seed", b"sead"))
    with pytest.raises(DamagedData, match="spoiled"):
        compare(sound, spoiled.path)


def test_another_model_is_compared_in_what_both_hold(sound, train, at):
    act = at(2, "params", (0, 1), nudge("w1"))
    found = compare(sound, train("other", rename={"b1": "bias"}, extra=("head",), change=act))
    assert not found.same
    listed = {(entry.stream, entry.tensor) for entry in found.layout_differences}
    assert {("params", "b1"), ("params", "bias"), ("params", "head"), ("grads", "b1")} <= listed
    assert (found.first.step, found.first.stream, found.first.tensor) == (2, "params", "w1")
    assert "do not hold the same tensors" in found.verdict
    assert "params: b1 (float32 [6]) only in a" in found.verdict


def test_another_model_whose_rest_is_equal_is_not_the_same(sound, train):
    found = compare(sound, train("renamed", rename={"b1": "bias"}))
    assert found.first is None
    assert not found.same
    assert "everything else is identical" in found.verdict.lower()
    assert found.rows.is_empty()


def test_other_shapes_are_named(sound, train):
    found = compare(sound, train("wide", width=9))
    entry = next(entry for entry in found.layout_differences if entry.stream == "params")
    assert str(entry) == "w1 is float32 [8, 6] in a, float32 [9, 6] in b"
    # What a rank is fed is part of what happens, so a batch of another shape is a difference.
    assert found.first is not None


def test_a_tensor_that_appears_later_on_one_side_is_a_difference(sound, train):
    def lie(step, stream, rank, tensors):
        if stream == "optimizer" and step < 3:
            del tensors["w1.momentum"]
        return tensors

    found = compare(sound, train("late", lie=lambda *a: lie(*a)))
    listed = [(entry.stream, entry.tensor) for entry in found.layout_differences]
    assert listed == [("optimizer", "w1.momentum")]
    a = train("a", lie=lambda *a: lie(*a))
    b = train("b", lie=lambda step, *a: lie(step if step != 2 else 9, *a))
    found = compare(a, b)
    assert (found.first.step, found.first.stream) == (2, "optimizer")
    assert found.first.tensor == "w1.momentum"
    assert found.first.kind == "layout"
    assert found.rows["kind"].to_list() == ["layout", "layout"]


def test_no_rank_in_common(train):
    a, b = train("a"), train("b")
    for run, rank in ((a, 0), (b, 1)):
        for entry in run.path.rglob(f"rank-{rank:05d}*"):
            if entry.exists() and entry.suffix in (".bin", ".jsonl", ".zarr"):
                entry.rename(run.path / f"gone-{entry.name}")
    with pytest.raises(NothingToCompare, match="no rank"):
        compare(a, b)


def test_replicas_of_a_sound_run_agree(sound):
    found = compare(sound)
    assert found.same
    assert found.reference == 0
    assert "the 2 ranks of the run sound are identical" in found.verdict.lower()


@pytest.mark.parametrize("odd", [0, 2, 3])
def test_the_rank_that_differs_from_most_is_named(train, at, odd):
    found = compare(train("run", ranks=4, change=at(2, "params", (odd,), nudge("w1"))))
    assert (found.first.step, found.first.stream, found.first.ranks) == (2, "params", (odd,))
    assert found.reference == (1 if odd == 0 else 0)
    assert f"rank {odd} differs from ranks" in found.verdict
    assert "which agree with one another" in found.verdict
    assert found.rows["rank"].unique().to_list() == [odd]


def test_of_two_ranks_nothing_tells_which_is_right(train, at):
    found = compare(train("run", change=at(2, "params", (0,), nudge("w1"))))
    assert "nothing tells which is right" in found.verdict


def test_a_reduction_that_gives_ranks_different_results(train, at):
    found = compare(train("run", ranks=3, change=at(2, "grads", (1,), nudge("w1"))))
    assert found.first.stream == "grads"
    assert "should get the same gradients from the reduction" in found.verdict


def test_ranks_whose_threads_differ_are_listed(lab_of_ranks):
    found = compare(lab_of_ranks)
    rows = {row["key"]: row for row in found.environment.to_dicts()}
    assert rows["threads"]["a"] == "1"
    assert rows["threads"]["b"] == "rank 1: 8"
    assert not rows["threads"]["incidental"]
    assert rows["process.pid"]["incidental"]


@pytest.fixture
def lab_of_ranks(train):
    from reprolab.store.records import read_file, write_text

    run = train("run")
    path = run.path / "attempts" / "000" / "attempt.json"
    record = read_file(path)
    for rank, environment in record["environments"].items():
        environment["threads"] = 1 if rank == "0" else 8
    path.write_bytes(write_text(record))
    return run.path


def test_one_rank_alone_has_nothing_to_be_compared_with(train):
    with pytest.raises(NothingToCompare, match="at least two"):
        compare(train("alone", ranks=1))


def standing(value, move_at=None):
    """A further generator in the records, that stands still but for one step."""

    def lie(step, stream, rank, tensors):
        if stream == "rng":
            state = np.full(16, value + (move_at is not None and step >= move_at), np.uint8)
            return tensors | {"python": state}
        return None

    return lie


def test_a_generator_that_nothing_draws_from_does_not_part_the_runs(train):
    found = compare(train("idle-a", lie=standing(1)), train("idle-b", lie=standing(2)))
    assert found.same
    assert said(found, "the generator python stands elsewhere", "nothing draws from it")


def test_a_generator_that_moves_on_either_side_parts_the_runs(train):
    found = compare(train("still", lie=standing(1)), train("moves", lie=standing(2, move_at=3)))
    assert (found.first.step, found.first.stream, found.first.tensor) == (0, "rng", "python")
    assert not any("python" in note for note in found.notes)


def test_with_one_step_nobody_can_tell_whether_a_generator_is_used(train):
    runs = train("one-a", lie=standing(1)), train("one-b", lie=standing(2))
    assert compare(*runs, steps=0).first.tensor == "python"
