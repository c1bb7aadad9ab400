import json

import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling import stragglers
from reprolab.errors import TraceError
from reprolab.traces import open_trace


def write(folder, *, ranks=4, steps=30, slow=None, compute=True, name="output"):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for rank in range(ranks):
        document = {"host_memory_GB": 3.0}
        for epoch in ("1", "2"):
            load = rng.uniform(0.010, 0.011, steps) * (3 if rank == slow else 1)
            work = rng.uniform(0.050, 0.051, steps)
            document[epoch] = {
                "load": {"block1": load.tolist(), "eval": [9.0]},
                "proc": {"block1": (load + work + 0.001).tolist(), "eval": [9.0]},
            }
            if compute:
                document[epoch]["compute"] = {"block1": work.tolist(), "eval": [9.0]}
        document["hostname"] = "node"
        (folder / f"{rank}_{name}.json").write_text(json.dumps(document, indent=4))
    (folder / "summary.json").write_text("{}")
    return folder


def test_steps_of_all_epochs_follow_each_other(tmp_path):
    trace = open_trace(write(tmp_path / "d"))
    assert trace.source == "dlio"
    assert trace.ranks == [0, 1, 2, 3]
    assert trace.steps == list(range(60))
    assert "DLIO records no moments" in trace.notes[-1]
    end = pl.col("start") + pl.col("duration")
    ends = trace.operations.filter(pl.col("operation") == "barrier").group_by("step")
    spread = ends.agg(start=end.max() - end.min())
    assert spread["start"].max() < 1e-9


def test_a_rank_with_slow_storage_is_found(tmp_path):
    found = stragglers(write(tmp_path / "d", slow=1))
    assert found.late == (1,)
    assert found.headline == "rank 1 is late: slow data loading"


def test_even_ranks_are_even(tmp_path):
    assert stragglers(write(tmp_path / "d")).headline == "no straggler"


def test_old_outputs_have_no_compute(tmp_path):
    trace = open_trace(write(tmp_path / "d", compute=False, name="load_and_proc_times"))
    compute = trace.operations.filter(pl.col("operation") == "compute")["duration"]
    assert compute.mean() == pytest.approx(0.0515, rel=0.01)


def test_ranks_with_fewer_steps_shorten_the_trace(tmp_path):
    folder = write(tmp_path / "d")
    path = folder / "2_output.json"
    document = json.loads(path.read_text())
    del document["2"]
    path.write_text(json.dumps(document))
    trace = open_trace(folder)
    assert len(trace.steps) == 30
    assert "the first 30 were used" in trace.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "by epoch"),
        ('{"1": {"load": 3, "proc": 4}}', "by block"),
        ("{}", "recorded no steps"),
    ],
)
def test_what_is_no_output_is_refused(tmp_path, text, said):
    path = tmp_path / "0_output.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        open_trace(path)


def test_cut_json_is_an_error(tmp_path):
    folder = write(tmp_path / "d")
    path = folder / "3_output.json"
    path.write_text(path.read_text()[:200])
    with pytest.raises(TraceError, match="no JSON, or it is cut short"):
        open_trace(folder)
