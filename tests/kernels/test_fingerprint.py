import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import UnsupportedDtype
from reprolab.kernels import Fingerprint, fingerprint, fingerprint_stream, merge
from reprolab.vocabulary import ITEMSIZE, Layout, Region, TensorSpec

DTYPES = list(ITEMSIZE)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.one_of(st.integers(0, 70), st.integers(1000, 5000))
LAW = settings(max_examples=60, deadline=None)


def digest_of(array):
    return int(fingerprint(array, block_bytes=1024).total().digest[0])


def as_words(array):
    return array.view(f"u{array.dtype.itemsize}")


@LAW
@given(st.sampled_from(DTYPES), st.integers(1, 3000), SEEDS, st.data())
def test_any_flipped_bit_changes_the_digest_of_its_block_alone(
    random_array, dtype, size, seed, data
):
    array = random_array(dtype, (size,), seed, special=True)
    bit = data.draw(st.integers(0, 8 * array.nbytes - 1))
    changed = array.copy()
    changed.view(np.uint8)[bit // 8] ^= np.uint8(1 << bit % 8)
    a, b = (fingerprint(side, block_bytes=1024) for side in (array, changed))
    assert np.flatnonzero(a.digest != b.digest).tolist() == [bit // 8 // 1024]


@LAW
@given(st.sampled_from(DTYPES), st.integers(2, 300), SEEDS, st.data())
def test_swapping_elements_changes_the_digest_unless_they_are_equal(
    random_array, dtype, size, seed, data
):
    array = random_array(dtype, (size,), seed, special=True)
    i, j = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    swapped = array.copy()
    words = as_words(swapped)
    words[[i, j]] = words[[j, i]]
    equal = as_words(array)[i] == as_words(array)[j]
    assert (digest_of(array) == digest_of(swapped)) == equal


@LAW
@given(st.sampled_from(DTYPES), st.integers(2, 300), SEEDS)
def test_permutations_change_the_digest(random_array, dtype, size, seed):
    array = random_array(dtype, (size,), seed, special=True)
    order = np.random.default_rng(seed).permutation(size)
    permuted = as_words(array)[order].view(array.dtype)
    assert (digest_of(array) == digest_of(permuted)) == (permuted.tobytes() == array.tobytes())


@pytest.mark.parametrize("dtype", DTYPES)
def test_swapped_equal_pairs_do_not_cancel(dtype):
    # An XOR of all words cannot tell these apart: every value comes an even number of times.
    a = np.array([1, 1, 0, 0] * 16).astype(dtype)
    b = np.array([0, 0, 1, 1] * 16).astype(dtype)
    assert digest_of(a) != digest_of(b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_have_a_digest_that_knows_how_many_words_there_are(dtype):
    words = 8 // ITEMSIZE[dtype]
    digests = {digest_of(np.zeros(count * words, dtype)) for count in range(40)}
    assert len(digests) == 40


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "float" in name])
@pytest.mark.parametrize("size", [1, 2, 64, 1000])
def test_negative_zero_and_sign_flips_change_the_digest(dtype, size):
    zeros, ones = np.zeros(size, dtype), np.ones(size, dtype)
    assert digest_of(zeros) != digest_of(-zeros)
    assert digest_of(ones) != digest_of(-ones)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "float" in name])
def test_payloads_of_nan_change_the_digest_and_nothing_else(dtype):
    word = np.dtype(f"u{ITEMSIZE[dtype]}")
    quiet = np.full(50, np.nan, dtype)
    other = quiet.copy()
    other.view(word)[7] ^= word.type(1 << (8 * ITEMSIZE[dtype] - 1))
    a, b = fingerprint(quiet), fingerprint(other)
    assert a.digest != b.digest
    np.testing.assert_array_equal(a.moments, [[50, 50, 0, np.inf, -np.inf, 0, 0]])
    np.testing.assert_array_equal(a.moments, b.moments)
    assert not a.sketch.any()


@LAW
@given(st.sampled_from(DTYPES), SIZES, SEEDS, st.booleans())
def test_moments_are_those_of_the_finite_values(random_array, dtype, size, seed, special):
    array = random_array(dtype, (size,), seed, special=special)
    found = fingerprint(array).total().moments[0]
    with np.errstate(all="ignore"):
        numbers = array.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        assert found[0] == size
        assert found[1] == np.isnan(numbers).sum()
        assert found[2] == np.isinf(numbers).sum()
        if size:
            assert found[3] == finite.min(initial=np.inf)
            assert found[4] == finite.max(initial=-np.inf)
        squares = np.square(finite).sum()
        np.testing.assert_allclose(found[6], squares, rtol=1e-6)
        if np.isfinite(squares):
            assert abs(found[5] - finite.sum()) <= 2.0**-20 * np.abs(finite).sum()


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bfloat16"])
def test_a_single_number_stands_in_its_moments_exactly(dtype):
    value = np.array(3.0517578125e-05 if "float" in dtype else 41).astype(dtype)
    found = fingerprint(value).moments[0]
    number = float(value)
    np.testing.assert_array_equal(found, [1, 0, 0, number, number, number, number**2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_tensors_have_no_rows(dtype):
    found = fingerprint(np.zeros((3, 0, 2), dtype))
    assert len(found) == 0
    np.testing.assert_array_equal(found.total().moments, np.zeros((1, 7)))


@LAW
@given(st.sampled_from(DTYPES), st.integers(1, 12), st.integers(1, 12), SEEDS)
def test_strides_byte_order_and_write_access_do_not_matter(
    random_array, dtype, rows, columns, seed
):
    array = random_array(dtype, (rows, columns), seed, special=True)
    expected = fingerprint(array).digest.tolist()
    array.flags.writeable = False
    assert fingerprint(array).digest.tolist() == expected
    assert fingerprint(np.asfortranarray(array)).digest.tolist() == expected
    padded = np.zeros((rows, 3 * columns), array.dtype)
    padded[:, ::3] = array
    assert fingerprint(padded[:, ::3]).digest.tolist() == expected
    if array.dtype.isbuiltin == 1:
        foreign = array.astype(array.dtype.newbyteorder(">"))
        assert fingerprint(foreign).digest.tolist() == expected


def test_input_at_any_address_gives_the_same(random_array):
    array = random_array("float32", (700,), 5)
    expected = fingerprint(array)
    for shift in range(1, 9):
        memory = np.zeros(array.nbytes + shift, np.uint8)
        moved = memory[shift:].view()
        moved[...] = array.view(np.uint8)
        found = fingerprint(np.frombuffer(moved.data, np.float32))
        np.testing.assert_array_equal(found.digest, expected.digest)
        np.testing.assert_array_equal(found.sketch, expected.sketch)


def test_the_shape_does_not_matter_but_the_order_does(random_array):
    array = random_array("float32", (6, 35), 5)
    assert digest_of(array) == digest_of(array.reshape(-1))
    assert digest_of(array) != digest_of(array.T)


@LAW
@given(st.lists(st.tuples(st.sampled_from(DTYPES), SIZES), max_size=8), SEEDS, st.data())
def test_a_stream_is_its_tensors_row_by_row(random_array, tensors, seed, data):
    layout = Layout(
        tuple(TensorSpec(f"t{i}", dtype, (size,)) for i, (dtype, size) in enumerate(tensors)), 256
    )
    arrays = [
        random_array(spec.dtype, spec.shape, seed + i) if data.draw(st.booleans()) else None
        for i, spec in enumerate(layout.tensors)
    ]
    found = fingerprint_stream(arrays, layout)
    for index, array in enumerate(arrays):
        rows = found.rows(layout.rows_of(index))
        alone = (
            Fingerprint.zeros(len(rows))
            if array is None
            else fingerprint(array, block_bytes=layout.block_bytes)
        )
        for name in ("digest", "moments", "sketch"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(alone, name))


def test_the_total_of_a_stream_rolls_up(random_array):
    array = random_array("float32", (5000,), 9)
    blocks, one = fingerprint(array, block_bytes=256).total(), fingerprint(array)
    assert blocks.digest == one.digest
    np.testing.assert_allclose(blocks.moments, one.moments)
    np.testing.assert_allclose(blocks.sketch, one.sketch)
    assert one.moments[0, 0] == 5000


def test_sums_beyond_float64_become_infinite_without_warnings():
    array = np.full(64, 1e308)
    total = fingerprint(array, block_bytes=256).total()
    assert total.moments[0].tolist() == [64, 0, 0, 1e308, 1e308, np.inf, np.inf]
    halves = [
        fingerprint(array[low : low + 32], shape=(64,), region=Region((low,), (32,)))
        for low in (0, 32)
    ]
    assert merge(halves).digest == total.digest


def test_a_tensor_that_is_not_what_the_layout_says_is_named():
    layout = Layout((TensorSpec("fc.weight", "float32", (2, 3)),))
    for wrong in (np.zeros((3, 2), np.float32), np.zeros((2, 3))):
        with pytest.raises(ValueError, match=r"fc\.weight.*float32 \(2, 3\).*got float"):
            fingerprint_stream([wrong], layout)
    with pytest.raises(ValueError, match="1 tensors; got 0"):
        fingerprint_stream([], layout)


def test_what_cannot_be_fingerprinted_is_refused_clearly():
    with pytest.raises(UnsupportedDtype, match="got complex64"):
        fingerprint(np.zeros(3, np.complex64))
    with pytest.raises(TypeError, match="got list"):
        fingerprint([1.0])
    with pytest.raises(ValueError, match="shape of the whole tensor"):
        fingerprint(np.zeros(3), region=Region((0,), (3,)))
    with pytest.raises(ValueError, match="must have the tensor's shape"):
        fingerprint(np.zeros(3), shape=(9,), region=Region((0,), (4,)))
    with pytest.raises(ValueError, match="inside"):
        fingerprint(np.zeros(3), shape=(9,), region=Region((7,), (3,)))
    with pytest.raises(ValueError, match="without a region"):
        fingerprint(np.zeros(3), shape=(9,))
    with pytest.raises(ValueError, match="multiple of 16"):
        fingerprint(np.zeros(3), block_bytes=24)
