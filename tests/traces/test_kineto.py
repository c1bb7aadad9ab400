import gzip
import json
import os
import tarfile
from pathlib import Path

import polars as pl
import pytest

from reprolab.diagnosis.straggling import stragglers
from reprolab.errors import TraceError
from reprolab.tables.operations import OPERATIONS
from reprolab.traces import open_trace


def met(trace):
    return trace.operations.filter(pl.col("role") == "barrier")


def test_collectives_and_the_work_between_them(kineto_folder):
    trace = open_trace(kineto_folder())
    assert trace.source == "kineto"
    assert trace.operations.schema == OPERATIONS
    assert trace.ranks == [0, 1, 2, 3]
    assert trace.steps == [5, 6, 7, 8]
    assert trace.world_size == 4
    assert trace.notes == ()
    step = trace.operations.filter(pl.col("rank") == 2, pl.col("step") == 5)
    rows = step.select("operation", "group", pl.col("duration").round(9) * 1e3).rows()
    assert rows == [
        ("compute", None, pytest.approx(3.0)),
        ("data", None, pytest.approx(0.4)),
        ("all-reduce", "0 all-reduce #0", pytest.approx(0.3)),
        ("compute", None, 0.0),
        ("all-gather", "0 all-gather #0", pytest.approx(0.4)),
        ("compute", None, 0.0),
    ]
    assert step.filter(pl.col("operation") == "all-reduce")["bytes"].to_list() == [1000]


def test_the_late_rank_is_the_one_that_waits_least(kineto_folder):
    found = stragglers(kineto_folder(steps=8))
    assert found.late == (2,)
    assert found.rows["ranks"]["rank"][0] == 2


@pytest.mark.parametrize(
    "how",
    [
        {"old": True},
        {"grouped": False},
        {"base": 1694128201435377},
        {"base": 5201183.123, "header": {"baseTimeNanoseconds": 1727740800000000000}},
    ],
    ids=["old names", "no process groups", "epoch integers", "decimals since a base"],
)
def test_profilers_of_all_ages_are_read(kineto_folder, how):
    plain = met(open_trace(kineto_folder())).select("rank", "step", "operation", "duration")
    found = met(open_trace(kineto_folder(**how))).select("rank", "step", "operation", "duration")
    assert found.drop("duration").equals(plain.drop("duration"))
    assert (found["duration"] - plain["duration"]).abs().max() < 1e-6


def test_ranks_come_from_the_names_when_the_files_do_not_say(kineto_folder):
    trace = open_trace(kineto_folder(told=False))
    assert trace.ranks == [0, 1, 2, 3]
    assert "does not say its rank; taken to be rank 0" in trace.notes[0]


def test_packed_files_and_archives_are_read_where_they_are(kineto_folder, tmp_path):
    folder = kineto_folder()
    plain = open_trace(folder)
    archive = tmp_path / "all.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "traces")
    before = set(tmp_path.rglob("*"))
    assert open_trace(archive).operations.equals(plain.operations)
    assert set(tmp_path.rglob("*")) == before
    for path in folder.iterdir():
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert open_trace(folder).operations.equals(plain.operations)


def test_a_kernel_belongs_to_the_step_that_launched_it(tmp_path):
    """GPU work runs behind: a collective may run when the host is in the next step already."""
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "ts": 100 * n,
            "dur": 100,
        }
        for n in range(2)
    ]
    events += [
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 90, "args": {"correlation": 4}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 120, "dur": 10}
        | {"args": {"correlation": 4}},
    ]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert met(open_trace(path))["step"].to_list() == [0]


def test_gloo_collectives_are_taken_where_no_gpu_has_any(tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 50},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 60, "dur": 20},
    ]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = open_trace(path)
    assert met(trace)["duration"].to_list() == pytest.approx([2e-5])
    assert trace.operations.filter(pl.col("operation") == "compute")["duration"].sum() == (
        pytest.approx(5e-5)
    )
    assert "marks no steps" in trace.notes[0]


def test_missing_ranks_are_said(kineto_folder):
    folder = kineto_folder()
    (folder / "worker3.pt.trace.json").unlink()
    trace = open_trace(folder)
    assert "1 of 4 ranks have no trace." in trace.notes
    assert trace.world_size == 4


def test_two_files_of_one_rank_are_refused(kineto_folder):
    folder = kineto_folder()
    (folder / "copy.json").write_bytes((folder / "worker3.pt.trace.json").read_bytes())
    with pytest.raises(TraceError, match="two files are rank 3"):
        open_trace(folder)


def test_a_truncated_file_is_used_as_far_as_it_goes(kineto_folder):
    folder = kineto_folder()
    path = folder / "worker1.pt.trace.json"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    trace = open_trace(folder)
    assert any("worker1.pt.trace.json ends within an event" in note for note in trace.notes)
    found = stragglers(trace)
    assert any("steps lack a rank or have other communications" in n for n in found.notes)


def test_a_trace_without_collectives_says_so(tmp_path):
    events = [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 5}]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert "no collectives" in open_trace(path).notes[-1]


def test_a_trace_without_anything_is_refused(tmp_path):
    path = tmp_path / "one.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(TraceError, match="no operation that can be used"):
        open_trace(path)


def test_the_published_traces_name_rank_7():
    """A person who looks for the longest step blames rank 1; it only waited the longest."""
    if "REPROLAB_TRACES" not in os.environ:
        pytest.skip("REPROLAB_TRACES does not name a folder with kineto/dlrm_kineto.tar.gz")
    path = Path(os.environ["REPROLAB_TRACES"]) / "kineto" / "dlrm_kineto.tar.gz"
    found = stragglers(path)
    assert found.late == (7,)
    assert found.rows["ranks"]["rank"][0] == 7
    assert "only one step was recorded" in found.verdict
