import subprocess
import sys

import numpy as np
import pytest

from reprolab.errors import RecordingFailed
from reprolab.store import open_run, paths


def test_close_folds_once(tmp_path, make):
    writer = make.begin(tmp_path)
    writer.fingerprint(0, "params", make.layout(), make.fingerprint(1))
    writer.close()
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    writer.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    assert not paths.journal(tmp_path / "run", 0, 0).exists()
    with pytest.raises(RecordingFailed, match="closed"):
        writer.fact("note", text="late")
    with pytest.raises(RecordingFailed, match="closed"):
        writer.fingerprint(1, "params", make.layout(), make.fingerprint(1))


def test_a_later_attempt_folds_what_a_crash_left(tmp_path, make):
    crashed = make.begin(tmp_path)
    crashed.fingerprint(0, "params", make.layout(), make.fingerprint(1, 0))
    crashed.flush()
    writer = make.again(tmp_path)
    writer.fingerprint(1, "params", make.layout(), make.fingerprint(1, 1))
    writer.close()
    run = tmp_path / "run"
    assert not any(paths.journal(run, attempt, 0).exists() for attempt in (0, 1))
    reader = open_run(run).fingerprints(0)
    assert reader.steps("params").tolist() == [0, 1]
    assert [reader.recordings("params", step) for step in (0, 1)] == [[0], [1]]


def test_a_damaged_journal_of_a_crash_stays_and_the_new_one_is_folded(tmp_path, make):
    crashed = make.begin(tmp_path)
    crashed.fingerprint(0, "params", make.layout(), make.fingerprint(1, 0))
    crashed.flush()
    writer = make.again(tmp_path)
    writer.fingerprint(1, "params", make.layout(), make.fingerprint(1, 1))
    journal = paths.journal(tmp_path / "run", 0, 0)
    damaged = bytearray(journal.read_bytes())
    damaged[-5] ^= 1
    journal.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"a journal stays as it is.*rank-00000\.bin"):
        writer.close()
    assert journal.read_bytes() == damaged
    reader = open_run(tmp_path / "run").fingerprints(0)
    assert np.array_equal(reader.fingerprint("params", 1).digest, make.fingerprint(1, 1).digest)


@pytest.mark.parametrize("stream", ["../params", "Params", "replicas", "a/b", ""])
def test_a_hostile_stream_is_refused(tmp_path, make, stream):
    writer = make.begin(tmp_path)
    with pytest.raises(ValueError, match="a stream's name"):
        writer.fingerprint(0, stream, make.layout(), make.fingerprint(1))
    writer.close()


def test_a_checkpoint_makes_the_records_before_it_readable(tmp_path, make):
    writer = make.begin(tmp_path)
    writer.fact("note", 0, text="before")
    writer.fingerprint(0, "params", make.layout(), make.fingerprint(1))
    writer.checkpoint(0, {})
    run = open_run(tmp_path / "run")
    assert [fact["text"] for fact in run.facts()] == ["before"]
    assert run.fingerprints(0).streams == ["params"]
    writer.close()


def test_neither_writing_nor_reading_back_imports_zarr_or_polars(tmp_path):
    script = """
import sys, numpy as np
from reprolab.kernels import fingerprint_stream
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.vocabulary import Layout, TensorSpec
spec = TensorSpec("w", "bfloat16", (0,))
writer = begin_run(sys.argv[1], "a", rendezvous=Alone(), config={}, mesh={}, policy=Policy(),
                   environment={}, code={})
layout = Layout((spec,))
writer.fingerprint(0, "params", layout, fingerprint_stream([None], layout))
writer.checkpoint(0, {"params": [(spec, np.empty(0, np.uint8))]})
writer.close()
run = open_run(writer.path)
run.fingerprints(0).fingerprint("params", 0)
run.checkpoint(0).read("params", "w")
print(sorted(sys.modules.keys() & {"zarr", "polars", "torch", "altair"}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, tmp_path], capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr
