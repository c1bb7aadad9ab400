import numpy as np
import pytest

from reprolab.kernels import (
    Fingerprint,
    estimate,
    fingerprint,
    fingerprint_stream,
    narrow_rows,
    twin_fingerprint,
)
from reprolab.kernels.regions import whole
from reprolab.kernels.tensors import flat_bytes
from reprolab.vocabulary import Layout, TensorSpec

BLOCKS, SIDE = 4096, 32
STATED = np.sqrt(2 / 16)

place = np.arange(SIDE * SIDE)
PATTERNS = {
    "one element": place == 77,
    "two elements": (place == 77) | (place == 500),
    "two elements of a window": (place == 64) | (place == 81),
    "a row": place // SIDE == 5,
    "a column": place % SIDE == 9,
    "two columns": place % SIDE % 16 == 9,
    "stride 16": place % 16 == 3,
    "stride 48": place % 48 == 3,
    "a quarter": place < SIDE * SIDE // 4,
    "everything": place >= 0,
}


@pytest.mark.parametrize("sizes", ["equal", "random", "alternating"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_estimates_have_no_bias_and_the_stated_error(pattern, sizes):
    # Every block is a trial of its own: its windows, and so lanes and signs, are others.
    rng = np.random.default_rng(3)
    shape = (BLOCKS, SIDE * SIDE)
    step = {
        "equal": np.ones(shape),
        "random": rng.standard_normal(shape),
        "alternating": np.broadcast_to((-1.0) ** place, shape),
    }[sizes]
    change = (step * PATTERNS[pattern]).astype(np.float32)
    a = fingerprint(np.zeros(shape, np.float32), block_bytes=4 * SIDE * SIDE)
    b = fingerprint(change, block_bytes=4 * SIDE * SIDE)
    found = estimate(a, b)
    truth = np.square(change.astype(float)).sum(axis=1)
    ratio = found.squared / truth
    assert abs(ratio.mean() - 1) < 4 * STATED / np.sqrt(BLOCKS)
    assert ratio.std() < 1.06 * STATED
    np.testing.assert_allclose(found.error, STATED * found.squared)
    if pattern == "one element":
        np.testing.assert_allclose(ratio, 1, rtol=1e-12)

    total = found.total()
    assert abs(total.squared[0] / truth.sum() - 1) < 5 * STATED / np.sqrt(BLOCKS)
    assert total.error[0] < 1.2 * STATED / np.sqrt(BLOCKS) * total.squared[0] * 2


def test_distances_between_real_tensors():
    rng = np.random.default_rng(4)
    a = rng.standard_normal(300_000).astype(np.float32)
    b = (a * (1 + 1e-6 * rng.standard_normal(a.size))).astype(np.float32)
    found = estimate(*(fingerprint(side, block_bytes=4096) for side in (a, b))).total()
    truth = np.square(a.astype(float) - b).sum()
    assert abs(found.squared[0] - truth) < 4 * found.error[0]
    assert found.error[0] < 0.05 * truth
    assert not found.below_resolution[0]


def test_equal_digests_mean_distance_zero():
    a = fingerprint(np.arange(1000.0))
    found = estimate(a, a)
    assert found.same.all()
    assert not found.below_resolution.any()
    assert (found.squared[0], found.error[0], found.floor[0]) == (0, 0, 0)


def test_what_the_sketch_cannot_see_is_below_resolution():
    zeros = np.zeros(100, np.float32)
    found = estimate(fingerprint(zeros), fingerprint(-zeros))
    assert not found.same[0]
    assert found.below_resolution[0]
    assert found.total().below_resolution[0]


def test_nan_and_infinity_are_reported():
    a = np.ones(2000, np.float32)
    b = a.copy()
    b[1500] = np.nan
    found = estimate(*(fingerprint(side, block_bytes=4096) for side in (a, b)))
    assert found.nonfinite.tolist() == [False, True]
    assert found.squared.tolist() == [0.0, 1.0]


def test_rows_must_belong_together():
    with pytest.raises(ValueError, match="got 1 and 2"):
        estimate(Fingerprint.zeros(1), Fingerprint.zeros(2))


def test_narrow_rows_follow_the_layout():
    specs = [("a", "bfloat16", 40), ("b", "float32", 20), ("c", "int8", 16), ("d", "float16", 1)]
    layout = Layout(tuple(TensorSpec(name, dtype, (size,)) for name, dtype, size in specs), 32)
    assert narrow_rows(layout).tolist() == [True] * 3 + [False] * 3 + [False] + [True]


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.standard_normal(n),
        lambda rng, n: rng.standard_normal(n) * np.exp(4 * rng.standard_normal(n)),
        lambda rng, n: np.abs(rng.standard_normal(n)) * 0.01,
        lambda rng, n: np.where(np.arange(n) % 997 == 0, 3e4, rng.standard_normal(n) * 1e-3),
    ],
    ids=["normal", "log-normal", "one-sided", "rare spikes"],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "float32", "float64"])
def test_rounding_stays_below_the_floor(dtype, draw):
    itemsize = np.dtype(dtype).itemsize
    numbers = np.clip(draw(np.random.default_rng(5), (1 << 20) // itemsize), -5e4, 5e4)
    array = numbers.astype(dtype)
    layout = Layout((TensorSpec("t", dtype, array.shape),))
    ours = fingerprint_stream([array], layout)
    twin = Fingerprint.zeros(1)
    twin_fingerprint.accumulate(flat_bytes(array), dtype, whole(array.size), 1 << 20, twin)
    # Another digest, so that the two are not taken for the same bits.
    other = Fingerprint(twin.digest + np.uint64(1), twin.moments, twin.sketch)
    assert estimate(ours, other, narrow=narrow_rows(layout)).below_resolution.all()
