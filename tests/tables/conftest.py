"""Real runs on disk for tables."""

import numpy as np
import pytest

from reprolab.kernels import fingerprint_stream
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.vocabulary import Layout, TensorSpec


@pytest.fixture
def write(tmp_path):
    """Record a run of one rank, of three steps and a checkpoint."""

    def written(name="run", close=True, facts=True):
        writer = begin_run(
            tmp_path / "lab",
            name,
            rendezvous=Alone(),
            config={},
            mesh={"dp": 1},
            policy=Policy(),
            environment={"versions": {"torch": "2"}, "threads": 1},
            code={"git": {"commit": "abc"}},
        )
        for step in range(3):
            spec = TensorSpec("w", "float32", (step // 2 + 2, 3))
            layout = Layout((spec, TensorSpec("empty", "int64", (0,))))
            value = np.full(spec.shape, step, np.float32)
            found = fingerprint_stream([value, np.zeros(0, np.int64)], layout)
            writer.fingerprint(step, "params", layout, found)
            if step < 2:
                writer.fingerprint(step, "loss", layout, found)
            if facts:
                writer.fact("span", step, name="forward", start=1.5 * step, duration=1)
                writer.fact("metric", step, name="loss", value=[2.5, float("nan"), 1][step])
                writer.fact("batch", step, index=0, ids=["a", 1], sizes={"samples": 2})
                writer.fact("resource", step, rss=10, cuda={"0": {"peak": 2.5}}, host="h")
                writer.fact("note", step, text="<b>skipped</b>")
        writer.checkpoint(2, {"params": [(spec, value)]})
        if close:
            writer.fact("end", reason="finished")
            writer.close()
        else:
            writer.flush()
        return open_run(tmp_path / "lab" / name)

    return written
