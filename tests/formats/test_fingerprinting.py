import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

from reprolab.errors import DamagedData
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.formats.fingerprinting import fingerprint_stretches
from reprolab.kernels import fingerprint

MIB = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of 150 MiB in tensors of uneven sizes."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    rng = np.random.default_rng(0)
    sizes = {"big": 25_000_001, "middle": 10_000_003, "small": 1000, "odd": 1}
    tensors = {name: rng.integers(0, 2**31, size, np.int32) for name, size in sizes.items()}
    tensors["empty"] = np.zeros(0, np.int32)
    save_file(tensors, path)
    return path, tensors


class Watched(ProcessPoolExecutor):
    """Keeps what is sent to the workers and what comes back."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.sent, self.back = [], []

    def submit(self, function, task):
        self.sent.append(len(pickle.dumps((function, task))))
        future = super().submit(_with_pid, function, task)
        outer = type(future)()

        def forward(done):
            if done.exception():
                outer.set_exception(done.exception())
            else:
                pid, result = done.result()
                self.back.append((pid, len(pickle.dumps(result))))
                outer.set_result(result)

        future.add_done_callback(forward)
        return outer


def _with_pid(function, task):
    return os.getpid(), function(task)


def expected(tensors, layout):
    parts = [fingerprint(tensors[name], block_bytes=layout.block_bytes) for name in layout.names]
    return [
        np.concatenate([getattr(part, kind) for part in parts])
        for kind in ("digest", "moments", "sketch")
    ]


def same(found, parts):
    return (
        (found.digest == parts[0]).all()
        and np.allclose(found.moments, parts[1], rtol=1e-12)
        and np.allclose(found.sketch, parts[2], rtol=1e-9, atol=1e-3)
    )


def test_threads_and_processes_agree_with_the_kernel(large):
    path, tensors = large
    layout, alone = fingerprint_checkpoint(path)
    assert same(alone, expected(tensors, layout))
    with ThreadPoolExecutor(3) as threads:
        _, threaded = fingerprint_checkpoint(path, executor=threads)
    assert (threaded.digest == alone.digest).all()
    context = multiprocessing.get_context("spawn")
    with Watched(2, mp_context=context) as processes:
        _, found = fingerprint_checkpoint(path, executor=processes)
    assert (found.digest == alone.digest).all()
    assert (found.sketch == alone.sketch).all()
    assert len({pid for pid, _ in processes.back}) == 2
    assert os.getpid() not in {pid for pid, _ in processes.back}
    read = path.stat().st_size
    assert sum(size for _, size in processes.back) < read / 100
    assert max(processes.sent) < 3000


def test_forked_workers_open_the_file_themselves(large):
    path, _ = large
    layout, alone = fingerprint_checkpoint(path, block_bytes=4 * MIB)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        again, found = fingerprint_checkpoint(path, block_bytes=4 * MIB, executor=processes)
    assert again == layout
    assert (found.digest == alone.digest).all()


@pytest.mark.parametrize("block_bytes", [4096, MIB, 64 * MIB])
def test_any_size_of_blocks(large, block_bytes):
    path, tensors = large
    layout, found = fingerprint_checkpoint(path, block_bytes=block_bytes)
    assert layout.block_bytes == block_bytes
    assert same(found, expected(tensors, layout))


def test_an_open_checkpoint_stays_open(large):
    path, tensors = large
    with open_checkpoint(path) as opened:
        layout, _ = fingerprint_checkpoint(opened)
        assert layout.tensors == opened.layout.tensors
        assert (opened.read("small") == tensors["small"]).all()


def test_a_checkpoint_that_changes_meanwhile_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"w": np.zeros(4, np.float32)}, path)
    tasks = []

    class Slow(ThreadPoolExecutor):
        def submit(self, function, task):
            tasks.append(task)
            return super().submit(function, task)

    with Slow(1) as threads:
        fingerprint_checkpoint(path, executor=threads)
    save_file({"w": np.zeros(5, np.float32)}, path)
    with pytest.raises(DamagedData, match="changed meanwhile"):
        fingerprint_stretches(tasks[0])


def test_a_relative_path_means_the_same_to_workers_elsewhere(large, monkeypatch):
    path, _ = large
    monkeypatch.chdir(path.parent)
    with open_checkpoint(path.name) as opened:
        assert opened.path == str(path)


def test_memory_stays_bounded(large):
    """The peak of a pass over 150 MiB is that of a pass over little, give or take two pieces."""
    script = """
import resource, sys
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from reprolab.formats import fingerprint_checkpoint
from reprolab.kernels import fingerprint
fingerprint(np.zeros(1000, np.float32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ThreadPoolExecutor(1) as threads:
    fingerprint_checkpoint(sys.argv[1], executor=threads)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(large[0])], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 60


def test_nothing_heavy_is_imported_to_open_common_files(large):
    script = """
import json, sys
from reprolab.formats import fingerprint_checkpoint
fingerprint_checkpoint(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(large[0])], capture_output=True, text=True, check=True
    )
    import json

    absent = {
        "torch",
        "zarr",
        "polars",
        "altair",
        "tensorstore",
        "fsspec",
        "safetensors",
        "numcodecs",
    }
    assert not absent & set(json.loads(done.stdout))
