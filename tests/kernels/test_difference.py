import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import UnsupportedDtype
from reprolab.kernels import ULP_CLASSES, difference, twin_difference
from reprolab.kernels.tensors import flat_bytes
from reprolab.vocabulary import ITEMSIZE

DTYPES = list(ITEMSIZE)
FLOATS = [name for name in DTYPES if "float" in name]
SEEDS = st.integers(0, 2**32 - 1)
EXACT = ("differing", "beyond", "max_abs", "max_ulp", "nan_mismatch", "inf_mismatch")


def classes(found):
    return {ULP_CLASSES[k]: int(n) for k, n in enumerate(found.ulp_histogram) if n}


def assert_is_the_twin_s(a, b, **tolerances):
    found = difference(a, b, **tolerances)
    twin = twin_difference.tally(
        flat_bytes(a), flat_bytes(b), a.dtype.name, tolerances["atol"], tolerances["rtol"]
    )
    for name in EXACT:
        assert getattr(found, name) == getattr(twin, name), name
    assert (-1 if found.first is None else found.first) == twin.first
    np.testing.assert_array_equal(found.ulp_histogram, twin.histogram)
    rtol = 1e-12
    if a.dtype.name in FLOATS and a.itemsize <= 4:
        rtol = 2.0**-22 if a.itemsize == 4 else 2.0**-18
    np.testing.assert_allclose(found.sum_sq_diff, twin.sum_sq_diff, rtol=rtol)
    np.testing.assert_allclose(found.sum_sq_a, twin.sum_sq_a, rtol=rtol)
    assert found.count == a.size == found.ulp_histogram.sum()
    assert found.differing == found.count - found.ulp_histogram[0]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.one_of(st.integers(0, 100), st.integers(1000, 5000)),
    SEEDS,
    st.booleans(),
    st.sampled_from([0.0, 0.001, 0.3, 1.0]),
    st.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.01), (1e-3, 1e-3)]),
)
def test_compiled_is_the_twin(random_array, dtype, size, seed, special, changed, tolerances):
    a = random_array(dtype, (size,), seed, special=special)
    b = a.copy()
    rng = np.random.default_rng(seed)
    bits = b.view(np.uint8)
    touched = rng.random(len(bits)) < changed
    flips = rng.integers(0, 2 if dtype == "bool" else 256, len(bits)).astype(np.uint8)
    bits[touched] ^= flips[touched]
    assert_is_the_twin_s(a, b, atol=tolerances[0], rtol=tolerances[1])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DTYPES), SEEDS, st.integers(0, 63), st.booleans())
def test_compiled_is_the_twin_for_steps_of_any_size(random_array, dtype, seed, power, down):
    # Whole tiles of finite values, so that the fast paths are taken.
    a = random_array(dtype, (4096,), seed)
    word = np.dtype(f"u{a.dtype.itemsize}")
    rng = np.random.default_rng(seed)
    step = rng.integers(0, 2, a.size).astype(word) << word.type(power % (8 * word.itemsize - 1))
    b = a.copy()
    words = b.view(word)
    words[...] = words - step if down else words + step
    if dtype == "bool":
        words &= 1
    assert_is_the_twin_s(a, b, atol=0.0, rtol=0.0)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FLOATS), SEEDS, st.floats(0, 0.2), st.booleans())
def test_compiled_is_the_twin_where_signs_and_zeros_change(random_array, dtype, seed, share, zero):
    a = random_array(dtype, (3000,), seed)
    rng = np.random.default_rng(seed)
    if zero:
        a[rng.random(a.size) < 0.5] = 0
    b = np.where(rng.random(a.size) < share, -a, a).astype(a.dtype)
    assert_is_the_twin_s(a, b, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("power", [-120, -100, -60, -30, 0, 30, 60, 120])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_compiled_is_the_twin_at_any_size(random_array, dtype, power):
    a = (random_array("float64", (4096,), 6) * 2.0**power).astype(dtype)
    b = a.copy()
    b.view(f"u{a.itemsize}")[::3] ^= 1
    assert_is_the_twin_s(a, b, atol=0.0, rtol=0.0)
    assert_is_the_twin_s(a, b, atol=2.0**power * 1e-3, rtol=0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    st.floats(-100, 100),
    st.integers(0, 900),
)
def test_ulp_distance_counts_the_representable_values_between(dtype, value, steps):
    dtype = np.dtype(dtype)
    start = np.array([value]).astype(dtype)
    end = start.copy()
    for _ in range(steps % 40):
        end = np.nextafter(end, dtype.type(np.inf))
    expected = steps % 40
    found = difference(start, end)
    # numpy's nextafter passes through -0 and +0, which are one value here
    assert found.max_ulp in (expected, expected - 1)
    if np.signbit(start) == np.signbit(end):
        assert found.max_ulp == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=True, allow_infinity=True),
            st.floats(width=32, allow_nan=True, allow_infinity=True),
        ),
        max_size=50,
    ),
    st.sampled_from([0.0, 1e-3, 10.0]),
    st.sampled_from([0.0, 1e-3, 0.5]),
)
def test_beyond_is_what_allclose_means(pairs, atol, rtol):
    a = np.array([pair[0] for pair in pairs], np.float32)
    b = np.array([pair[1] for pair in pairs], np.float32)
    close = np.isclose(a.astype(float), b.astype(float), atol=atol, rtol=rtol, equal_nan=True)
    assert difference(a, b, atol=atol, rtol=rtol).beyond == np.count_nonzero(~close)


def test_classes_by_hand():
    one = np.float32(1)
    a = np.array([1, 1, 1, 1, 1, 0.0, np.nan, np.nan, 2, np.inf, np.inf], np.float32)
    b = np.array(
        [1, np.nextafter(one, one * 2), 1, 1, -1, -0.0, 3, np.nan, 3, np.inf, 1], np.float32
    )
    b.view(np.uint32)[2:4] += np.array([2, 7], np.uint32)
    found = difference(a, b)
    assert classes(found) == {
        "0": 3, "1": 1, "2-3": 1, "4-7": 1, "sign flip": 2, "NaN": 1,
        "4194304-8388607": 1, "1073741824-2147483647": 1,
    }  # fmt: skip
    assert found.first == 1
    assert found.differing == 8
    assert (found.nan_mismatch, found.inf_mismatch) == (1, 1)
    assert found.max_abs == 2.0
    assert found.max_ulp == 2 * 0x3F800000
    # Everything that differs but the two zeros, which are equal as numbers.
    assert found.beyond == 7


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_differences_beyond_the_range_of_the_dtype(dtype):
    high = np.full(4096, 3e38, dtype)
    found = difference(high, -high)
    assert found.max_abs == 2 * float(high[0])
    assert found.sum_sq_diff == pytest.approx(4096 * found.max_abs**2)
    assert_is_the_twin_s(high, -high, atol=0.0, rtol=0.0)


def test_integers_differ_by_numbers():
    extremes = np.array([np.iinfo(np.int64).min, 5, -1], np.int64)
    found = difference(extremes, np.array([np.iinfo(np.int64).max, 7, 1], np.int64))
    assert found.max_ulp == 2**64 - 1
    assert found.max_abs == 2.0**64
    assert classes(found) == {"2-3": 2, "9223372036854775808-18446744073709551615": 1}
    large = np.array([2**53, 2**63], np.uint64)
    assert difference(large, large + np.uint64(1)).max_abs == 1.0


def test_class_names_bound_the_distances():
    assert len(ULP_CLASSES) == twin_difference.CLASSES
    for power in (0, 1, 2, 22):
        low = np.zeros(2048, np.float32)
        for steps, name in ((1 << power, 1 + power), ((2 << power) - 1, 1 + power)):
            high = low.copy()
            high.view(np.uint32)[...] = steps
            assert difference(low, high).ulp_histogram[name] == 2048


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_differs_from_itself(random_array, dtype):
    a = random_array(dtype, (3000,), 8, special=True)
    found = difference(a, a.copy())
    assert found.same
    assert found == difference(a, a)
    assert found.first is None
    assert (found.beyond, found.max_abs, found.max_ulp, found.sum_sq_diff) == (0, 0, 0, 0)
    assert classes(found) == {"0": 3000}
    assert found.relative == 0


def test_shapes_strides_and_empties():
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    b = a.copy()
    b[2, 3] += 1
    a.flags.writeable = False
    assert difference(a, b).first == 15
    assert difference(np.asfortranarray(a), b).first == 15
    assert difference(a[:, ::2], b[:, ::2]).same
    assert difference(a[:, 1::2], b[:, 1::2]).first == 7
    assert difference(a[2, 3], b[2, 3]).max_abs == 1
    assert difference(a[:0], b[:0]).count == 0
    assert difference(np.zeros(4, np.float32), b[0, :4]).relative == np.inf


def test_what_cannot_be_compared_is_refused():
    a = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"float32 \(3,\) and float64 \(3,\)"):
        difference(a, a.astype(float))
    with pytest.raises(ValueError, match="one dtype and shape"):
        difference(a, a[:2])
    for wrong in ({"atol": -1}, {"rtol": float("nan")}):
        with pytest.raises(ValueError, match="not be negative"):
            difference(a, a, **wrong)
    with pytest.raises(UnsupportedDtype):
        difference(a.astype(complex), a.astype(complex))
