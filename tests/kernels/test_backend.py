import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.kernels import (
    COMPILED,
    Fingerprint,
    backend,
    difference,
    fingerprint,
    fingerprint_stream,
    tensors,
    twin_fingerprint,
)
from reprolab.kernels.regions import runs, whole
from reprolab.kernels.tensors import CODES, flat_bytes, locate
from reprolab.vocabulary import ITEMSIZE, Layout, Region, TensorSpec

ROOT = Path(__file__).parents[2]
DTYPES = st.sampled_from(list(ITEMSIZE))
SEEDS = st.integers(0, 2**32 - 1)

compiled = pytest.mark.skipif(not COMPILED, reason="the kernels are not compiled here")


def test_the_tests_run_with_compiled_kernels_where_a_compiler_is():
    assert COMPILED or not (shutil.which("cc") or shutil.which("gcc"))


def test_codes_are_those_of_the_c_sources():
    text = (ROOT / "cython" / "elements.h").read_text()
    listed = text[text.index("enum dtype {") : text.index("};")].split("{")[1].split(",")
    names = [name.strip().lower() for name in listed]
    assert [
        name.replace("e4m3fn", "float8_e4m3fn").replace("e5m2", "float8_e5m2") for name in names
    ] == list(CODES)


@compiled
@settings(max_examples=100, deadline=None)
@given(DTYPES, st.integers(1, 5000), SEEDS, st.booleans(), st.data())
def test_compiled_is_the_twin(random_array, dtype, size, seed, special, data):
    array = random_array(dtype, (size,), seed, special=special)
    low = data.draw(st.integers(0, size - 1))
    high = data.draw(st.integers(low + 1, size))
    stretch = data.draw(
        st.sampled_from([whole(size), runs((size,), Region((low,), (high - low,)))])
    )
    part = np.ascontiguousarray(array[low:high] if stretch.length < size else array)
    block_bytes = data.draw(st.sampled_from([16, 48, 1024, 1 << 20]))
    ours, twin = (Fingerprint.zeros(-(-array.nbytes // block_bytes)) for _ in range(2))
    backend.passes.add_runs(
        locate(part)[1], CODES[dtype], stretch.starts, stretch.length, stretch.size, block_bytes,
        ours.digest, ours.moments, ours.sketch,
    )  # fmt: skip
    twin_fingerprint.accumulate(flat_bytes(part), dtype, stretch, block_bytes, twin)
    np.testing.assert_array_equal(ours.digest, twin.digest)
    np.testing.assert_array_equal(ours.moments[:, :5], twin.moments[:, :5])
    with np.errstate(all="ignore"):
        numbers = part.astype(np.float64)
        bound = 2.0**-18 * np.abs(numbers[np.isfinite(numbers)]).sum()
    if np.isfinite(twin.moments).all() and np.isfinite(twin.sketch).all():
        assert np.abs(ours.sketch - twin.sketch).max() <= bound
        assert np.abs(ours.moments[:, 5] - twin.moments[:, 5]).max() <= bound
        np.testing.assert_allclose(ours.moments[:, 6], twin.moments[:, 6], rtol=2.0**-18)


@compiled
@settings(max_examples=60, deadline=None)
@given(DTYPES, st.integers(1, 20000), SEEDS, st.booleans())
def test_all_instruction_sets_agree_bit_for_bit(random_array, dtype, size, seed, special):
    array = random_array(dtype, (size,), seed, special=special)
    other = np.roll(array, 1)
    found = []
    try:
        for index in range(backend.passes.LEVELS):
            backend.passes.use_level(index)
            print_ = fingerprint(array, block_bytes=4096)
            found.append((print_.digest, print_.moments, print_.sketch, difference(array, other)))
    finally:
        backend.passes.use_level(backend.passes.LEVELS - 1)
    for level in found[1:]:
        for one, two in zip(found[0][:3], level[:3], strict=True):
            np.testing.assert_array_equal(one, two)
        for name in ("differing", "beyond", "first", "max_abs", "max_ulp"):
            assert getattr(found[0][3], name) == getattr(level[3], name)
        np.testing.assert_array_equal(found[0][3].ulp_histogram, level[3].ulp_histogram)
        np.testing.assert_array_equal(
            [found[0][3].sum_sq_diff, found[0][3].sum_sq_a],
            [level[3].sum_sq_diff, level[3].sum_sq_a],
        )


@compiled
def test_unknown_instruction_sets_are_refused():
    with pytest.raises(ValueError, match="from 0 to"):
        backend.passes.use_level(backend.passes.LEVELS)


@compiled
def test_other_threads_run_while_a_kernel_does():
    array = np.ones(1 << 26, np.uint8)
    layout = Layout((TensorSpec("a", "uint8", array.shape),))
    ticks, done = [], threading.Event()

    def work():
        fingerprint_stream([array], layout)
        difference(array, array)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    thread.join()
    assert len(ticks) > 5


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def test_twins_take_over_with_one_visible_warning():
    code = """
import sys
sys.modules["reprolab.kernels._passes"] = None  # as if no compiler had run
import numpy as np
from reprolab.kernels import COMPILED, difference, estimate, fingerprint, fingerprint_stream, merge
from reprolab.vocabulary import Layout, Region, TensorSpec
import reprolab.kernels.tensors
assert not COMPILED
x = np.arange(1000, dtype=np.float32)
shards = [
    fingerprint(x[low:high], shape=x.shape, region=Region((low,), (high - low,)))
    for low, high in ((0, 333), (333, 1000))
]
layout = Layout((TensorSpec("x", "float32", (1000,)), TensorSpec("y", "int8", (3,))))
stream = fingerprint_stream([x, None], layout)
assert merge(shards).digest == fingerprint(x).digest == stream.digest[0] and not stream.digest[1]
print(f"{int(fingerprint(x).digest[0]):016x}", difference(x, x[::-1]).differing)
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    x = np.arange(1000, dtype=np.float32)
    assert result.stdout.split() == [f"{int(fingerprint(x).digest[0]):016x}", "1000"]
    assert result.stderr.count("Warning") == 1, result.stderr
    assert "compiled kernels are missing" in result.stderr


def test_kernels_import_neither_torch_nor_polars():
    code = "import sys, reprolab.kernels; print({'torch', 'polars', 'zarr'} & set(sys.modules))"
    assert run_python(code).stdout.strip() == "set()"


def test_a_wheel_builds_and_imports_without_a_compiler(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(
            ".*", "build", "dist", "lab", "notebooks", "tests", "*.so", "*.egg-info", "__pycache__"
        ),
    )  # fmt: skip
    result = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(tmp_path)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"CC": "false", "LDSHARED": "false"},
    )
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "reprolab/kernels/twin_fingerprint.py" in names
    assert not [name for name in names if name.endswith(".so")]
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = "import reprolab.kernels as k; print(k.COMPILED, k.__file__.startswith({!r}))"
    result = run_python(f"import sys; sys.path.insert(0, {str(site)!r}); {code.format(str(site))}")
    assert result.stdout.split() == ["False", "True"], result.stderr
    assert result.stderr.count("RuntimeWarning") == 1


def test_a_source_tree_without_kernels_is_not_built(tmp_path):
    shutil.copy(ROOT / "setup.py", tmp_path)
    result = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert "incomplete" in result.stderr


def test_names_of_dtypes_are_those_of_the_vocabulary():
    assert tuple(ITEMSIZE) == tensors.DTYPES
