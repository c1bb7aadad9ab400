import threading

import numpy as np
import pytest

from reprolab.errors import NothingToCompare
from reprolab.store import open_run


def test_streams_come_in_causal_order(tmp_path, make):
    writer = make.begin(tmp_path)
    for stream in ("grads", "zeta", "loss", "params", "alpha", "rng"):
        writer.fingerprint(0, stream, make.layout(), make.fingerprint(1))
    writer.close()
    streams = open_run(tmp_path / "run").fingerprints(0).streams
    assert streams == ["rng", "params", "loss", "grads", "alpha", "zeta"]


def test_the_newest_attempt_wins_and_the_others_stay_readable(tmp_path, make):
    for attempt, steps in enumerate([range(5), range(3, 8)]):
        writer = make.begin(tmp_path) if attempt == 0 else make.again(tmp_path)
        for step in steps:
            writer.fingerprint(step, "params", make.layout(), make.fingerprint(1, (attempt, step)))
        if attempt == 0:
            writer.flush()
        else:
            writer.close()
    reader = open_run(tmp_path / "run").fingerprints(0)
    assert reader.steps("params").tolist() == list(range(8))
    assert reader.recordings("params", 2) == [0]
    assert reader.recordings("params", 4) == [0, 1]
    for attempt in (0, 1):
        expected = make.fingerprint(1, (attempt, 4)).digest
        assert reader.fingerprint("params", 4, attempt=attempt).digest == expected
        assert reader.tensor_digests("params", 4, attempt=attempt) == expected
    assert reader.fingerprint("params", 4).digest == make.fingerprint(1, (1, 4)).digest
    assert reader.stream_digests("params")[4] == make.fingerprint(1, (1, 4)).digest[0]


def test_what_was_not_recorded_is_said(tmp_path, make):
    writer = make.begin(tmp_path)
    writer.fingerprint(2, "params", make.layout(), make.fingerprint(1))
    writer.fingerprint(4, "params", make.layout(), make.fingerprint(1))
    writer.flush()
    reader = open_run(tmp_path / "run").fingerprints(0)
    with pytest.raises(NothingToCompare, match=r"step 3, run run, rank 0, stream params.*2 to 4"):
        reader.fingerprint("params", 3)
    with pytest.raises(NothingToCompare, match="in attempt 7"):
        reader.fingerprint("params", 2, attempt=7)
    with pytest.raises(NothingToCompare, match="no step"):
        reader.layout("grads", 2)
    assert reader.steps("grads").tolist() == []
    assert reader.stream_digests("grads").dtype == np.uint64
    assert reader.recordings("grads", 2) == []
    writer.close()


def test_a_rank_without_records_has_no_streams(tmp_path, make):
    make.begin(tmp_path).close()
    assert open_run(tmp_path / "run").fingerprints(7).streams == []


def test_a_reader_goes_on_while_the_writer_writes_and_folds(tmp_path, make):
    writer = make.begin(tmp_path)
    layout = make.layout(make.spec(shape=(200,)), block_bytes=64)
    expected = [make.fingerprint(layout.rows, step) for step in range(300)]
    early = None
    failures, seen = [], []

    def read():
        try:
            while not stop.is_set():
                reader = open_run(tmp_path / "run").fingerprints(0)
                steps = reader.steps("params").tolist()
                assert steps == list(range(len(steps)))
                seen.append(len(steps))
                for step in steps[-3:] + steps[:1]:
                    found = reader.fingerprint("params", step)
                    assert np.array_equal(found.sketch, expected[step].sketch)
        except Exception as error:
            failures.append(error)

    stop = threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    for step, fingerprint in enumerate(expected):
        writer.fingerprint(step, "params", layout, fingerprint)
        writer.flush()
        if step == 100:
            early = open_run(tmp_path / "run").fingerprints(0)
    writer.close()
    stop.set()
    thread.join()
    assert failures == []
    assert seen == sorted(seen)
    # The journal that it read from is gone.
    assert np.array_equal(early.fingerprint("params", 50).sketch, expected[50].sketch)
