import polars as pl
import pytest

from reprolab.errors import TraceError
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.traces import recorded


@pytest.fixture
def write(tmp_path):
    def make(facts):
        writer = begin_run(
            tmp_path / "lab",
            "r",
            rendezvous=Alone(),
            config={},
            mesh={"dp": 1},
            policy=Policy(),
            environment={},
            code={},
            timeout=5,
        )
        for kind, step, fields in facts:
            writer.fact(kind, step, **fields)
        writer.close()
        return open_run(tmp_path / "lab" / "r")

    return make


def span(step, name, start, duration):
    return "span", step, {"name": name, "start": start, "duration": duration}


def test_spans_are_operations(write):
    facts = []
    for step in range(3):
        facts += [
            span(step, "data", step + 0.0, 0.1),
            span(step, "forward", step + 0.1, 0.2),
            span(step, "backward", step + 0.3, 0.4),
            span(step, "reduce", step + 0.7, 0.1),
            span(step, "capture", step + 0.8, 0.9),
            ("batch", step, {"index": 0, "ids": [], "sizes": {"samples": 4, "bytes": 640}}),
            ("batch", step, {"index": 1, "ids": [], "sizes": {"samples": 4, "bytes": 60}}),
        ]
    trace = recorded(write(facts))
    assert trace.source == "run"
    assert trace.steps == [0, 1, 2]
    step = trace.operations.filter(pl.col("step") == 1)
    assert step.select("operation", "role", "group", "tokens").rows() == [
        ("data", "work", None, None),
        ("forward", "work", None, 700),
        ("backward", "work", None, 700),
        ("reduce", "barrier", "reduce", None),
    ]


def test_a_run_without_spans_is_an_error(write):
    with pytest.raises(TraceError, match="no spans yet"):
        recorded(write([("metric", 0, {"name": "loss", "value": 1.0})]))
