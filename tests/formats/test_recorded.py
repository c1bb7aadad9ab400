import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from reprolab.errors import DamagedData, StepNotCommitted, UnsupportedFormat
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.vocabulary import Region, TensorSpec


@pytest.fixture
def run(tmp_path):
    writer = begin_run(
        tmp_path / "lab",
        "run",
        rendezvous=Alone(),
        config={},
        mesh={"dp": 1},
        policy=Policy(),
        environment={},
        code={},
        timeout=20.0,
    )
    streams = {
        "params": {"w": np.arange(12.0, dtype=np.float32).reshape(4, 3)},
        "buffers": {"count": np.array(5)},
        "optimizer": {"w.exp_avg": np.ones((4, 3), np.float32)},
        "rng": {"torch": np.arange(16, dtype=np.uint8)},
    }
    tensors = {
        stream: [(TensorSpec(n, a.dtype.name, a.shape), a) for n, a in held.items()]
        for stream, held in streams.items()
    }
    writer.checkpoint(120, tensors, state={"epoch": 2})
    writer.close()
    return tmp_path / "lab" / "run"


def test_streams_get_names_beside_each_other(run):
    (folder,) = (run / "checkpoints").iterdir()
    with open_checkpoint(folder) as found:
        assert found.format == "reprolab"
        assert found.layout.names == ("w", "count", "optimizer.w.exp_avg", "rng.torch@rank-0")
        assert found.metadata == {"state.epoch": 2, "run": "run", "step": 120}
        assert (found.read("w", Region((1, 1), (2, 2))) == [[4, 5], [7, 8]]).all()
        assert found.read("count") == 5
        assert (found.read("rng.torch@rank-0") == np.arange(16)).all()


class Room:
    """Where threads that play ranks meet."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.posted = {}
        self.changed = threading.Condition()

    def seat(self, rank):
        room = self

        class Seat:
            world_size = room.world_size

            def post(self, key, payload):
                with room.changed:
                    room.posted[key, self.rank] = payload
                    room.changed.notify_all()

            def collect(self, key, timeout):
                wanted = [(key, r) for r in range(room.world_size)]
                with room.changed:
                    assert room.changed.wait_for(lambda: set(wanted) <= set(room.posted), timeout)
                    return [room.posted[place] for place in wanted]

        Seat.rank = rank
        return Seat()


def test_copies_of_ranks_that_disagreed_stand_beside_the_shared_one(tmp_path):
    room = Room(3)

    def play(rank):
        writer = begin_run(
            tmp_path,
            "run",
            rendezvous=room.seat(rank),
            config={},
            mesh={"dp": 3},
            policy=Policy(),
            environment={},
            code={},
            timeout=20.0,
        )
        mine = np.full(5, float(rank == 2), np.float32)
        spec = TensorSpec("w", "float32", (5,))
        writer.checkpoint(0, {"params": [(spec, mine)]})
        writer.close()

    with ThreadPoolExecutor(3) as ranks:
        list(ranks.map(play, range(3)))
    (folder,) = (tmp_path / "run" / "checkpoints").iterdir()
    with open_checkpoint(folder) as found:
        assert found.layout.names == ("w", "w@rank-2")
        assert (found.read("w") == 0).all()
        assert (found.read("w@rank-2") == 1).all()


def test_fingerprints_are_those_the_store_checked(run):
    (folder,) = (run / "checkpoints").iterdir()
    layout, found = fingerprint_checkpoint(folder)
    assert open_run(run).checkpoint(120).verify() == []
    assert found.moments[layout.rows_of(0), 0] == 12


def test_a_run_is_not_a_checkpoint_and_says_which_it_has(run):
    with pytest.raises(UnsupportedFormat, match=r"steps \[120\]"):
        open_checkpoint(run)


def test_a_run_file_of_another_tool_is_no_obstacle(tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "run.json").write_text('{"tool": "another"}')
    save_file({"w": np.ones(2)}, tmp_path / "model.safetensors")
    assert open_checkpoint(tmp_path).layout.names == ("w",)


def test_a_damaged_run_file_is_said(run):
    (folder,) = (run / "checkpoints").iterdir()
    (run / "run.json").write_text("{")
    with pytest.raises(DamagedData):
        open_checkpoint(folder)


def test_an_uncommitted_step_is_refused(run):
    (folder,) = (run / "checkpoints").iterdir()
    with pytest.raises(StepNotCommitted):
        open_checkpoint(folder.rename(folder.with_name("000000000121")))


def test_damage_is_found(run):
    (folder,) = (run / "checkpoints").iterdir()
    for path in folder.rglob("*"):
        if path.is_file() and path.name.startswith("c"):
            data = bytearray(path.read_bytes())
            data[0] ^= 1
            path.chmod(0o644)
            path.write_bytes(data)
    with open_checkpoint(folder) as found, pytest.raises(DamagedData):
        found.read("w")
