import json
import time

import numpy as np
import pytest

from reprolab.errors import CheckpointFailed, StepNotCommitted
from reprolab.store import open_run, paths, saving
from reprolab.vocabulary import TensorSpec

WORLD = 3


def state(make, step=0, odd=None, rank=0):
    """The same on every rank but for the RNG and, on the odd rank, one flipped bit."""
    specs = [make.spec("w", (700, 2000)), make.spec("B", (5,), "bfloat16"), make.spec("e", (0,))]
    params = [(spec, make.values(spec, seed=step)) for spec in specs]
    if rank == odd:
        params[0][1].view(np.uint8)[3, 7] ^= 1
    rng = make.spec("torch", (9,), "uint8")
    return {"params": params, "rng": [(rng, np.full(9, rank, np.uint8))]}


@pytest.fixture
def save(tmp_path, make, on_ranks):
    """Begin a run on three ranks and save steps; per rank a list of receipts or errors."""

    def run(*steps, world=WORLD, change=None, **others):
        def work(seat):
            writer = make.begin(tmp_path, rendezvous=seat, mesh={"dp": world}, timeout=5.0)
            found = []
            for step in steps:
                tensors = state(make, step, rank=seat.rank, **others)
                if change:
                    change(writer, seat.rank, step, tensors)
                try:
                    found.append(writer.checkpoint(step, tensors, state={"rank": seat.rank}))
                except Exception as error:
                    found.append(error)
            writer.close()
            return found

        return on_ranks(world, work)

    return run


def equal(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_a_checkpoint_of_several_ranks_holds_each_byte_once(save, tmp_path, make):
    receipts = save(0, 5)
    run = open_run(tmp_path / "run")
    assert run.checkpoints == [0, 5]
    checkpoint = run.checkpoint(5)
    assert checkpoint.streams == ["params", "rng"]
    for spec, values in state(make, 5)["params"]:
        assert equal(checkpoint.read("params", spec.name), values)
        assert checkpoint.ranks_of("params", spec.name) == []
    assert checkpoint.verify() == []
    assert [checkpoint.state(rank) for rank in range(WORLD)] == [{"rank": r} for r in range(WORLD)]
    total = 700 * 2000 * 4 + 5 * 2 + WORLD * 9
    assert [receipt.nbytes for _, receipt in receipts] == [total] * WORLD
    assert sum(receipt.written for _, receipt in receipts) == total
    assert all(receipt.disagreements == () for _, receipt in receipts)


def test_ranks_share_the_writing(save):
    receipts = save(0)
    assert max(receipt.written for (receipt,) in receipts) <= 4 << 20


def test_private_streams_are_kept_for_each_rank(save, tmp_path):
    save(0)
    checkpoint = open_run(tmp_path / "run").checkpoint(0)
    assert checkpoint.ranks_of("rng", "torch") == [0, 1, 2]
    for rank in range(WORLD):
        assert checkpoint.read("rng", "torch", rank).tolist() == [rank] * 9


@pytest.mark.parametrize("odd", range(WORLD))
def test_a_rank_that_disagrees_keeps_its_own_copy(save, tmp_path, make, odd):
    receipts = save(0, odd=odd)
    checkpoint = open_run(tmp_path / "run").checkpoint(0)
    assert checkpoint.ranks_of("params", "w") == [odd]
    for rank in range(WORLD):
        (_, expected), *_ = state(make, odd=odd, rank=rank)["params"]
        assert equal(checkpoint.read("params", "w", rank), expected)
    assert equal(checkpoint.read("params", "w"), state(make)["params"][0][1])
    assert {receipt.disagreements for (receipt,) in receipts} == {(("params", "w", (odd,)),)}
    assert checkpoint.verify() == []


def test_the_folder_is_a_zarr_hierarchy(save, tmp_path, make):
    import zarr

    save(0, odd=2)
    group = zarr.open_group(paths.checkpoint(tmp_path / "run", 0), mode="r")
    assert sorted(group.group_keys()) == ["params", "replicas"]
    assert equal(group["params"]["w"][...], state(make)["params"][0][1])
    names = {array.attrs["name"] for _, array in group["params"].arrays()}
    assert names == {"w", "B", "e"}
    assert group["replicas/rank-00002/params/w"].shape == (700, 2000)


def nothing_left(tmp_path, step=7):
    run = tmp_path / "run"
    assert not paths.checkpoint(run, step).exists()
    assert open_run(run).checkpoints == [0]
    assert open_run(run).checkpoint(0).verify() == []
    with pytest.raises(StepNotCommitted, match="committed steps: 0"):
        open_run(run).checkpoint(step)


def test_a_rank_that_cannot_offer_stops_all(save, tmp_path):
    def change(_, rank, step, tensors):
        if (rank, step) == (1, 7):
            spec, values = tensors["params"][0]
            tensors["params"][0] = (spec, values[:-1])

    for rank, (_, failure) in enumerate(save(0, 7, change=change)):
        assert isinstance(failure, CheckpointFailed), rank
        assert "rank 1" in str(failure)
        assert "'w' of stream 'params' must be 5600000 bytes" in str(failure)
    nothing_left(tmp_path)


@pytest.mark.parametrize("sick", range(WORLD))
def test_a_rank_that_cannot_write_stops_all(save, tmp_path, monkeypatch, sick):
    def change(writer, rank, step, _):
        if (rank, step) == (sick, 7):
            monkeypatch.setattr(writer._saver, "_requests", fail)

    def fail(*_):
        raise OSError(28, "No space left on device")

    for _, failure in save(0, 7, change=change):
        assert isinstance(failure, CheckpointFailed)
        assert f"rank {sick}" in str(failure)
        assert "No space left" in str(failure)
        assert "earlier checkpoints stay good" in str(failure)
    nothing_left(tmp_path)


def test_a_commit_that_fails_stops_all(save, tmp_path, monkeypatch):
    publish = saving.publish_file

    def fail(path, text):
        if path.name.endswith("7.json"):
            raise OSError(5, "Input/output error")
        publish(path, text)

    monkeypatch.setattr(saving, "publish_file", fail)
    for _, failure in save(0, 7):
        assert isinstance(failure, CheckpointFailed)
        assert "Input/output error" in str(failure)
    nothing_left(tmp_path)


def test_after_a_failure_the_same_step_can_be_saved(save, tmp_path, make):
    def change(_, rank, step, tensors):
        if rank == 1 and step == 7 and not failed:
            failed.append(step)
            tensors["params"][0] = (make.spec("w"), np.zeros(7))

    failed = []
    for _, failure, receipt in save(0, 7, 7, change=change):
        assert isinstance(failure, CheckpointFailed)
        assert receipt.step == 7
    assert open_run(tmp_path / "run").checkpoint(7).verify() == []


def test_a_step_is_never_overwritten(save, tmp_path, make):
    for first, second in save(0, 0):
        assert first.step == 0
        assert "never overwritten" in str(second)
    checkpoint = open_run(tmp_path / "run").checkpoint(0)
    assert equal(checkpoint.read("params", "w"), state(make)["params"][0][1])
    assert checkpoint.verify() == []


def test_a_missing_rank_is_named_and_nothing_is_committed(tmp_path, make, on_ranks):
    def work(seat):
        writer = make.begin(tmp_path, rendezvous=seat, timeout=1.0)
        writer.checkpoint(0, state(make, rank=seat.rank))
        if seat.rank == 2:
            return None
        began = time.monotonic()
        with pytest.raises(CheckpointFailed, match=r"rank \[2\].*no answer") as caught:
            writer.checkpoint(7, state(make, rank=seat.rank))
        assert time.monotonic() - began < 10
        writer.close()
        return caught.value

    failures = on_ranks(WORLD, work)
    assert all(isinstance(failure, CheckpointFailed) for failure in failures[:2])
    nothing_left(tmp_path)


def test_hostile_names_are_stored_and_found(tmp_path, make):
    names = ["../../../x", "a/b", "a\\b", "", ".", "..", "<script>", "a\nb", "w" * 3000, "W", "w"]
    names += ["zarr.json", "c", "\0", "\udcff", "ﬀ"]
    specs = [TensorSpec(name, "int64", ()) for name in names]
    writer = make.begin(tmp_path / "lab")
    writer.checkpoint(0, {"params": [(s, np.array(n)) for n, s in enumerate(specs)]})
    writer.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["lab"]
    checkpoint = open_run(tmp_path / "lab" / "run").checkpoint(0)
    assert checkpoint.verify() == []
    assert [int(checkpoint.read("params", name)) for name in names] == list(range(len(names)))
    assert checkpoint.layout("params").names == tuple(names)
    assert checkpoint.tensor("params", "../../../x")[()] == 0


def test_the_commit_leaves_room_for_other_kinds(tmp_path, make):
    writer = make.begin(tmp_path)
    writer.checkpoint(3, state(make), state={"epoch": 1, "best": float("nan")})
    writer.close()
    record = json.loads(paths.commit(tmp_path / "run", 3).read_text())
    assert (record["kind"], record["base_step"], record["step"]) == ("full", None, 3)
    assert record["states"] == [{"epoch": 1, "best": "nan"}]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"../evil": []}, "a stream's name"),
        ({"replicas": []}, "a stream's name"),
        ({"params": [(TensorSpec("w", "int8", (1,)), np.zeros(1, np.int8))] * 2}, "'w' twice"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path, make, tensors, message):
    writer = make.begin(tmp_path)
    with pytest.raises(CheckpointFailed, match=message):
        writer.checkpoint(0, tensors)
    with pytest.raises(CheckpointFailed, match=r"TypeError.*object"):
        writer.checkpoint(0, {}, state={"a": object()})
    with pytest.raises(ValueError, match="from 0"):
        writer.checkpoint(-1, {})
    writer.checkpoint(0, {})
    writer.close()
    assert open_run(tmp_path / "run").checkpoint(0).streams == []
