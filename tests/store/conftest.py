import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reprolab.kernels import Fingerprint
from reprolab.policy import Policy
from reprolab.store import Alone, begin_attempt, begin_run
from reprolab.store.arrays import numpy_dtype
from reprolab.vocabulary import LANES, MOMENTS, Layout, TensorSpec


def _load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def meeting():
    """Rendezvous of threads and of processes."""
    return _load("meeting")


@pytest.fixture(scope="session")
def make():
    """Makers of tensors, layouts, fingerprints and writers."""

    def begin(lab, name="run", rendezvous=None, **others):
        settings = {
            "config": {"lr": 0.1},
            "mesh": {"dp": 1},
            "policy": Policy(),
            "environment": {"host": "here"},
            "code": {},
            "timeout": 20.0,
        }
        return begin_run(lab, name, rendezvous=rendezvous or Alone(), **{**settings, **others})

    def again(lab, name="run", rendezvous=None, **others):
        settings = {"mesh": {"dp": 1}, "environment": {}, "code": {}, "timeout": 20.0}
        return begin_attempt(lab, name, rendezvous=rendezvous or Alone(), **{**settings, **others})

    def spec(name="w", shape=(4, 3), dtype="float32"):
        return TensorSpec(name, dtype, shape)

    def layout(*specs, block_bytes=1 << 20):
        return Layout(specs or (spec(),), block_bytes)

    def values(which, seed=0):
        bits = np.random.default_rng(seed).integers(0, 256, which.nbytes, np.uint8)
        if which.dtype == "bool":
            bits &= 1
        return bits.view(numpy_dtype(which.dtype)).reshape(which.shape)

    def fingerprint(rows, seed=0):
        # The store does not look into rows, so any numbers do, NaN among them.
        rng = np.random.default_rng(seed)
        moments = rng.standard_normal((rows, len(MOMENTS)))
        moments[:, 3] = -np.abs(moments[:, 3])
        moments[rng.random((rows, len(MOMENTS))) < 0.1] = np.inf
        return Fingerprint(
            rng.integers(0, 2**64, rows, np.uint64, endpoint=False),
            moments,
            rng.standard_normal((rows, LANES)),
        )

    return SimpleNamespace(
        begin=begin, again=again, spec=spec, layout=layout, values=values, fingerprint=fingerprint
    )


@pytest.fixture
def on_ranks(meeting):
    """Run one function on several ranks at once, each in a thread; results or errors by rank."""

    def run(world_size, function, ranks=None):
        table = meeting.Table(world_size)

        def one(rank):
            try:
                return function(meeting.Seat(table, rank))
            except Exception as error:
                return error

        with ThreadPoolExecutor(world_size) as threads:
            return list(threads.map(one, range(world_size) if ranks is None else ranks))

    return run
