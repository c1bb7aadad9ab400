import errno
import os
import shutil
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData
from reprolab.store import folded, paths
from reprolab.store.fingerprints import FingerprintReader
from reprolab.store.folding import fold
from reprolab.store.journal import JournalWriter
from reprolab.vocabulary import Layout, TensorSpec


def record(run, attempt, recordings, make, seed=0):
    """Write one attempt's journal as its writer would leave it."""
    place = paths.attempt(run, attempt)
    for name in ("ledger", "journal"):
        (place / name).mkdir(parents=True)
    paths.attempt_file(run, attempt).touch()
    journal = JournalWriter(paths.journal(run, attempt, 0))
    for number, (step, stream, layout) in enumerate(recordings):
        journal.append(step, stream, layout, make.fingerprint(layout.rows, seed=(seed, number)))
    journal.close()


def contents(reader):
    """Everything that a reader gives, as comparable values."""
    found = {}
    for stream in reader.streams:
        for step in reader.steps(stream).tolist():
            for attempt in reader.recordings(stream, step):
                where = (stream, step, attempt)
                block = reader.fingerprint(*where)
                parts = (
                    block.digest,
                    block.moments,
                    block.sketch,
                    reader.tensor_digests(*where),
                    reader.tensor_moments(*where),
                    reader.tensor_sketches(*where),
                )
                found[where] = (reader.layout(*where), *((p.shape, p.tobytes()) for p in parts))
        found[stream] = reader.stream_digests(stream).tolist()
    return found


def fold_all(run):
    for attempt in paths.attempts(run):
        journal = paths.journal(run, attempt, 0)
        if journal.exists():
            fold(paths.fingerprints(run, 0), attempt, journal)


def left_over(run):
    return [path.name for path in run.rglob("*") if path.name.endswith(".draft")]


layouts = st.lists(
    st.builds(
        TensorSpec,
        st.sampled_from(["a", "b", "ü/..", "C"]),
        st.just("float32"),
        st.lists(st.integers(0, 6), max_size=2).map(tuple),
    ),
    max_size=3,
).map(lambda specs: Layout(tuple(specs), 32))
attempts = st.lists(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["params", "batch"]), layouts),
        max_size=25,
        unique_by=lambda recording: recording[:2],
    ).map(sorted_by_step := lambda recordings: sorted(recordings, key=lambda entry: entry[0])),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=25)
@given(attempts, st.data())
def test_folding_changes_nothing_that_a_reader_sees(tmp_path_factory, make, attempts, data):
    run = tmp_path_factory.mktemp("run")
    for attempt, recordings in enumerate(attempts):
        record(run, attempt, recordings, make, seed=attempt)
        early = contents(FingerprintReader(run, 0))
        if data.draw(st.booleans()):
            fold_all(run)
            assert contents(FingerprintReader(run, 0)) == early
    fold_all(run)
    assert contents(FingerprintReader(run, 0)) == early
    assert not any(paths.journal(run, a, 0).exists() for a in range(len(attempts)))
    assert left_over(run) == []


@pytest.fixture
def run(tmp_path, make):
    """A run of forty steps, not folded."""
    layout = make.layout(make.spec("a", (7, 5)), make.spec("b", (40,)), block_bytes=64)
    steps = [(step, stream, layout) for step in range(40) for stream in ("params", "grads")]
    record(tmp_path, 0, steps, make)
    return tmp_path


def open_zarr(folder):
    return zarr.open_array(folder, mode="r")[...]


def open_tensorstore(folder):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    return tensorstore.open(spec, open=True, read=True).result().read().result()


@pytest.mark.parametrize("reader", [open_zarr, open_tensorstore])
def test_other_readers_see_the_same_rows(run, reader):
    before = FingerprintReader(run, 0)
    fold_all(run)
    group = paths.fingerprints(run, 0) / "params"
    found = {name: reader(group / name) for name in folded.COLUMNS}
    assert found["step"].tolist() == list(range(40))
    assert found["attempt"].tolist() == [0] * 40
    assert np.array_equal(found["stream_digest"], before.stream_digests("params"))
    for step in range(40):
        block = before.fingerprint("params", step)
        assert np.array_equal(found["digest"][step], block.digest)
        assert np.array_equal(found["moments"][step], block.moments)
        assert np.array_equal(found["sketch"][step], block.sketch)
        digests = before.tensor_digests("params", step)
        assert np.array_equal(found["tensor_digest"][step], digests)


def test_the_group_opens_as_a_zarr_hierarchy_that_explains_itself(run):
    fold_all(run)
    group = zarr.open_group(paths.fingerprints(run, 0), mode="r")
    assert sorted(group.group_keys()) == ["grads", "params"]
    params = group["params"]
    assert sorted(params.array_keys()) == sorted(folded.COLUMNS)
    assert params["sketch"].metadata.dimension_names == ("row", "block", "lane")
    (layout,) = params.attrs["reprolab"]["layouts"]
    assert [name for name, _, _ in layout["tensors"]] == ["a", "b"]


def test_many_steps_share_a_chunk(run):
    fold_all(run)
    chunks = list(paths.fingerprints(run, 0).rglob("c.*"))
    assert len(chunks) == 2 * len(folded.COLUMNS)


class Stop(BaseException):
    """The power goes."""


class Power:
    """Lets so many file operations pass and none after them."""

    def __init__(self, operations):
        self.left = operations

    def cut(self, operation):
        def passing(*arguments, **others):
            if self.left == 0:
                raise Stop
            self.left -= 1
            return operation(*arguments, **others)

        return passing


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_fold_that_stops_anywhere_loses_and_doubles_nothing(tmp_path, make, monkeypatch, attempt):
    """Stop before each file operation in turn, look, fold again, look again."""
    layout = make.layout(make.spec("a", (5,)))
    wider = make.layout(make.spec("a", (5,)), make.spec("b", (40,)), block_bytes=64)
    # The order of operations is at stake, not the disk.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    start = tmp_path / "start"
    streams = ("params", "grads")
    record(start, 0, [(step, name, layout) for step in range(3) for name in streams], make)
    if attempt:
        fold_all(start)
        again = [(step, name, wider) for step in range(2, 20) for name in streams]
        record(start, 1, again, make, seed=1)
    expected = contents(FingerprintReader(start, 0))
    for stops in count(step=1 + 2 * attempt):
        run = shutil.copytree(start, tmp_path / str(stops))
        with monkeypatch.context() as patched:
            power = Power(stops)
            patched.setattr(os, "fsync", power.cut(os.fsync))
            patched.setattr(Path, "replace", power.cut(Path.replace))
            # A dead process removes nothing.
            patched.setattr(Path, "unlink", power.cut(Path.unlink))
            try:
                fold(paths.fingerprints(run, 0), attempt, paths.journal(run, attempt, 0))
                finished = True
            except Stop:
                finished = False
        assert contents(FingerprintReader(run, 0)) == expected
        fold_all(run)
        assert contents(FingerprintReader(run, 0)) == expected
        for name in streams:
            rows = folded.read_index(paths.fingerprints(run, 0) / name).rows
            assert rows == (3 + 18 if attempt else 3)
        if finished:
            break
    assert stops > 40


def test_a_full_disk_keeps_the_journal(run, monkeypatch):
    expected = contents(FingerprintReader(run, 0))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        with pytest.raises(OSError, match="No space"):
            fold(paths.fingerprints(run, 0), 0, paths.journal(run, 0, 0))
    assert contents(FingerprintReader(run, 0)) == expected
    assert left_over(run) == []


def test_a_damaged_journal_is_not_folded(run):
    journal = paths.journal(run, 0, 0)
    damaged = bytearray(journal.read_bytes())
    damaged[-100] ^= 1
    journal.write_bytes(damaged)
    with pytest.raises(DamagedData):
        fold(paths.fingerprints(run, 0), 0, journal)
    assert journal.exists()
    reader = FingerprintReader(run, 0)
    assert reader.fingerprint("params", 39) is not None
    with pytest.raises(DamagedData, match=r"step 39, run .*, rank 0, stream grads"):
        reader.fingerprint("grads", 39)


def test_a_damaged_chunk_is_named(run):
    fold_all(run)
    chunk = paths.fingerprints(run, 0) / "params" / "sketch" / "c.0.0.0"
    damaged = bytearray(chunk.read_bytes())
    damaged[50] ^= 1
    chunk.write_bytes(damaged)
    reader = FingerprintReader(run, 0)
    assert reader.tensor_sketches("params", 3) is not None
    with pytest.raises(DamagedData, match=r"stream params, chunk .*sketch.c\.0\.0\.0"):
        reader.fingerprint("params", 3)


def test_damaged_attributes_are_named(run):
    fold_all(run)
    metadata = paths.fingerprints(run, 0) / "params" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"rows": 40', '"rows": 41'))
    with pytest.raises(DamagedData, match="attributes are damaged"):
        FingerprintReader(run, 0)


def test_a_wide_stream_is_cut_across_too(tmp_path, make, monkeypatch):
    monkeypatch.setattr(folded, "CHUNK_BYTES", 1 << 10)
    layout = make.layout(make.spec("a", (100,)), block_bytes=16)
    narrow = make.layout(make.spec("a", (3,)), block_bytes=16)
    record(tmp_path, 0, [(step, "params", layout) for step in range(5)], make)
    record(tmp_path, 1, [(step, "params", narrow) for step in range(5)], make, seed=1)
    expected = contents(FingerprintReader(tmp_path, 0))
    fold_all(tmp_path)
    assert contents(FingerprintReader(tmp_path, 0)) == expected
    sketch = paths.fingerprints(tmp_path, 0) / "params" / "sketch"
    assert len(list(sketch.glob("c.*"))) > 20
    found = open_zarr(sketch)
    assert np.array_equal(found, open_tensorstore(sketch))
    reader = FingerprintReader(tmp_path, 0)
    assert np.array_equal(found[7, :1], reader.fingerprint("params", 2, 1).sketch)
    assert not found[7, 1:].any()
