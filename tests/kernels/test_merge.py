from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.kernels import fingerprint, merge
from reprolab.vocabulary import ITEMSIZE, Region

LAW = settings(max_examples=80, deadline=None)
DTYPES = st.sampled_from(list(ITEMSIZE))
SEEDS = st.integers(0, 2**32 - 1)


def close(a, b, array):
    """Digests and counts agree exactly, sums to the rounding that the specification allows."""
    np.testing.assert_array_equal(a.digest, b.digest)
    np.testing.assert_array_equal(a.moments[:, :5], b.moments[:, :5])
    with np.errstate(all="ignore"):
        numbers = array.astype(np.float64)
        size = float(np.abs(numbers[np.isfinite(numbers)]).sum())
        squares = float(np.square(numbers[np.isfinite(numbers)]).sum())
    if np.isfinite(squares):
        assert np.abs(a.moments[:, 5] - b.moments[:, 5]).max(initial=0) <= 2.0**-20 * size
        np.testing.assert_allclose(a.moments[:, 6], b.moments[:, 6], rtol=1e-6, atol=0)
        assert np.abs(a.sketch - b.sketch).max(initial=0) <= 2.0**-20 * size


@st.composite
def shardings(draw):
    """A shape of 1 to 3 dims and its cuts, uneven and some of them empty."""
    shape = tuple(draw(st.lists(st.integers(0, 13), min_size=1, max_size=3)))
    cuts = [
        [0, *sorted(draw(st.lists(st.integers(0, extent), max_size=3))), extent] for extent in shape
    ]
    boxes = [((), ())]
    for cut in cuts:
        boxes = [
            ((*offset, low), (*extent, high - low))
            for offset, extent in boxes
            for low, high in pairwise(cut)
        ]
    return shape, [Region(*box) for box in boxes]


def shard_of(array, region):
    index = tuple(
        slice(low, low + extent) for low, extent in zip(region.offset, region.shape, strict=True)
    )
    return array[index]


@LAW
@given(DTYPES, shardings(), SEEDS, st.booleans(), st.randoms(use_true_random=False))
def test_shards_add_to_the_whole_in_any_order(random_array, dtype, sharding, seed, special, order):
    shape, regions = sharding
    array = random_array(dtype, shape, seed, special=special)
    parts = [
        fingerprint(shard_of(array, region), shape=shape, region=region, block_bytes=48)
        for region in regions
    ]
    order.shuffle(parts)
    while len(parts) > 1:
        group = [parts.pop() for _ in range(order.randint(2, len(parts)))]
        parts.append(merge(group))
    found = merge(parts)
    assert found.border is None
    close(found, fingerprint(array, block_bytes=48), array)


@LAW
@given(DTYPES, st.integers(1, 400), st.data(), SEEDS)
def test_every_split_adds_up(random_array, dtype, size, data, seed):
    array = random_array(dtype, (size,), seed, special=True)
    cut = data.draw(st.integers(0, size))
    parts = [
        fingerprint(array[low:high], shape=(size,), region=Region((low,), (high - low,)))
        for low, high in ((0, cut), (cut, size))
    ]
    if 0 < cut < size:
        assert all(part.border is not None for part in parts)
    close(merge(parts), fingerprint(array), array)


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
def test_every_split_of_a_small_tensor(random_array, dtype):
    array = random_array(dtype, (21,), 3, special=True)
    whole = fingerprint(array, block_bytes=16)
    for low in range(22):
        for high in range(low, 22):
            regions = [
                Region((a,), (b - a,)) for a, b in ((0, low), (low, high), (high, 21)) if b > a
            ]
            parts = [
                fingerprint(shard_of(array, r), shape=(21,), region=r, block_bytes=16)
                for r in regions
            ]
            assert merge(parts).digest.tolist() == whole.digest.tolist()


def test_a_large_sharded_tensor(random_array):
    array = random_array("bfloat16", (1300, 999), 4)
    regions = [
        Region((row, column), (min(433, 1300 - row), min(250, 999 - column)))
        for row in range(0, 1300, 433)
        for column in range(0, 999, 250)
    ]
    parts = [fingerprint(shard_of(array, r), shape=array.shape, region=r) for r in regions]
    close(merge(parts), fingerprint(array), array)


def test_a_missing_shard_leaves_the_tensor_open(random_array):
    array = random_array("uint8", (20,), 4)
    one = fingerprint(array[:5], shape=(20,), region=Region((0,), (5,)))
    two = fingerprint(array[5:9], shape=(20,), region=Region((5,), (4,)))
    rest = fingerprint(array[9:], shape=(20,), region=Region((9,), (11,)))
    assert merge([one, two]).border is not None
    assert merge([merge([one, two]), rest]).digest == fingerprint(array).digest


def test_a_part_is_not_changed_by_merging(random_array):
    array = random_array("int8", (24,), 4)
    parts = [
        fingerprint(array[low : low + 3], shape=(24,), region=Region((low,), (3,)))
        for low in range(0, 24, 3)
    ]
    before = [part.digest.copy() for part in parts]
    first = merge(parts).digest
    assert [part.digest.tolist() for part in parts] == [digest.tolist() for digest in before]
    assert merge(parts).digest == first


def test_what_does_not_add_up_is_refused(random_array):
    array = random_array("float32", (8, 4), 4)
    half = fingerprint(array[:4], shape=(8, 4), region=Region((0, 0), (4, 4)))
    with pytest.raises(ValueError, match="overlap"):
        merge([half, half])
    with pytest.raises(ValueError, match="already covers"):
        merge([fingerprint(array), half])
    other = fingerprint(array[:4].astype("float64"), shape=(8, 4), region=Region((4, 0), (4, 4)))
    with pytest.raises(ValueError, match="one shape, dtype and block size"):
        merge([half, other])
    with pytest.raises(ValueError, match="at least one"):
        merge([])
