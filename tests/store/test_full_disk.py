"""A disk that is really full: a small file system, or a limit on the size of files."""

import errno
import os
import resource
import subprocess
from collections import deque

import numpy as np
import pytest

from reprolab.errors import CheckpointFailed, RecordingFailed
from reprolab.store import open_run, paths

LEFT = 64 << 10


class SmallDisk:
    """A file system of 32 MiB."""

    def __init__(self, path):
        self.path = path
        self._ballast = path / "ballast"

    def fill(self):
        with self._ballast.open("wb") as file:
            free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
            file.write(bytes(free - LEFT))

    def empty(self):
        self._ballast.unlink()


class SmallFiles:
    """A limit beyond which this process cannot let a file grow."""

    def __init__(self, path):
        self.path = path
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (LEFT, self._limits[1]))

    def empty(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@pytest.fixture(params=["small disk", "small files"])
def disk(request, tmp_path):
    if request.param == "small files":
        limited = SmallFiles(tmp_path)
        yield limited
        limited.empty()
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", tmp_path],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield SmallDisk(tmp_path)
    subprocess.run(["umount", tmp_path], check=True)


def test_the_disk_gets_full(disk):
    disk.fill()
    with pytest.raises(OSError, match=r"space left|too large") as caught:
        (disk.path / "more").write_bytes(bytes(1 << 20))
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    disk.empty()
    (disk.path / "more").write_bytes(bytes(1 << 20))


def test_a_checkpoint_on_a_full_disk_fails_on_every_rank_and_the_others_stay_good(
    disk, make, on_ranks
):
    spec = make.spec(shape=(1000, 1500))

    def work(seat):
        writer = make.begin(disk.path / "lab", rendezvous=seat)
        tensors = {"params": [(spec, make.values(spec))]}
        writer.checkpoint(0, tensors)
        if seat.rank == 0:
            disk.fill()
        with pytest.raises(CheckpointFailed, match=r"space left|too large") as caught:
            writer.checkpoint(1, tensors)
        if seat.rank == 0:
            run = open_run(disk.path / "lab" / "run")
            assert run.checkpoints == [0]
            assert run.checkpoint(0).verify() == []
            assert not paths.checkpoint(run.path, 1).exists()
            disk.empty()
        seat.post("room", b"")
        seat.collect("room", 20.0)
        writer.checkpoint(1, tensors)
        writer.close()
        return caught.value

    for failure in on_ranks(3, work):
        assert isinstance(failure, CheckpointFailed), failure
    run = open_run(disk.path / "lab" / "run")
    assert run.checkpoints == [0, 1]
    assert [run.checkpoint(step).verify() for step in (0, 1)] == [[], []]
    assert (run.checkpoint(1).read("params", "w").tobytes()) == make.values(spec).tobytes()


def test_records_on_a_full_disk_stop_whole_and_go_on_when_there_is_room(disk, make):
    writer = make.begin(disk.path / "lab")
    layout = make.layout(make.spec(shape=(1 << 16,)), block_bytes=1 << 10)

    def record(step):
        writer.fact("note", step, text="x" * 20_000)
        writer.fingerprint(step, "params", layout, make.fingerprint(layout.rows, step))
        writer.flush()

    record(0)
    disk.fill()
    with pytest.raises(RecordingFailed, match=r"path .*could not be written.*Free some space"):
        deque(map(record, range(1, 100)))
    facts, reader = _read(disk)
    assert [fact["step"] for fact in facts] == list(range(len(facts)))
    for step in reader.steps("params").tolist():
        reader.fingerprint("params", step)
    failed = len(facts)
    disk.empty()
    for step in range(failed + 1, failed + 4):
        record(step)
    writer.close()
    facts, reader = _read(disk)
    assert [fact["step"] for fact in facts] == list(range(failed + 4))
    for step in reader.steps("params").tolist():
        expected = make.fingerprint(layout.rows, step)
        assert np.array_equal(reader.fingerprint("params", step).sketch, expected.sketch)


def _read(disk):
    run = open_run(disk.path / "lab" / "run")
    return list(run.facts()), run.fingerprints(0)


def test_a_disk_too_full_to_fold_leaves_the_journal(disk, make):
    writer = make.begin(disk.path / "lab")
    layout = make.layout(make.spec(shape=(1 << 16,)), block_bytes=1 << 10)
    for step in range(20):
        writer.fingerprint(step, "params", layout, make.fingerprint(layout.rows, step))
    writer.flush()
    disk.fill()
    with pytest.raises(RecordingFailed, match="nothing is lost"):
        writer.close()
    writer.close()
    _, reader = _read(disk)
    assert reader.steps("params").tolist() == list(range(20))
    expected = make.fingerprint(layout.rows, 19)
    assert np.array_equal(reader.fingerprint("params", 19).sketch, expected.sketch)
    assert paths.journal(disk.path / "lab" / "run", 0, 0).exists()
    disk.empty()
    make.again(disk.path / "lab").close()
    _, reader = _read(disk)
    assert not paths.journal(disk.path / "lab" / "run", 0, 0).exists()
    assert np.array_equal(reader.fingerprint("params", 19).sketch, expected.sketch)
