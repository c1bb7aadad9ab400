import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.kernels import Fingerprint, fingerprint_stream
from reprolab.store.arrays import numpy_dtype
from reprolab.store.layouts import layout_from, layout_record, roll_up, stream_digest
from reprolab.vocabulary import ITEMSIZE, Layout, TensorSpec

specs = st.builds(
    TensorSpec,
    st.text(max_size=5),
    st.sampled_from(sorted(ITEMSIZE)),
    st.lists(st.integers(0, 20), max_size=3).map(tuple),
)
layouts = st.builds(Layout, st.lists(specs, max_size=5).map(tuple), st.sampled_from([16, 64, 1024]))


@settings(deadline=None)
@given(layouts)
def test_a_layout_comes_back(layout):
    assert layout_from(layout_record(layout)) == layout


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"tensors": [], "block_bytes": 7},
        {"tensors": [["a"]], "block_bytes": 16},
        {"tensors": 3},
    ],
)
def test_anything_else_is_no_layout(record):
    with pytest.raises(ValueError, match=r"."):
        layout_from(record)


@settings(deadline=None, max_examples=50)
@given(layouts, st.integers(0, 2**32 - 1))
def test_a_roll_up_is_the_total_of_each_tensor(layout, seed):
    rng = np.random.default_rng(seed)
    tensors = []
    for spec in layout.tensors:
        values = rng.standard_normal(spec.shape) * (4 if "float" in spec.dtype else 100)
        tensor = np.abs(values).astype(numpy_dtype(spec.dtype))
        tensors.append(None if rng.random() < 0.2 else tensor)
    found = fingerprint_stream(tensors, layout)
    rolled = roll_up(layout, found)
    for number in range(len(layout.tensors)):
        total = found.rows(layout.rows_of(number)).total()
        assert rolled.digest[number] == total.digest[0]
        np.testing.assert_allclose(rolled.moments[number], total.moments[0], rtol=1e-12)
        np.testing.assert_allclose(rolled.sketch[number], total.sketch[0], rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(layouts, st.integers(0, 2**32 - 1))
def test_a_streams_digest_is_that_of_the_format_page(layout, seed):
    blocks = np.random.default_rng(seed).integers(0, 2**64, layout.rows, np.uint64, endpoint=False)
    expected = 0
    for number in range(len(layout.tensors)):
        times = (number * 0x9E3779B97F4A7C15) % 2**64 | 1
        expected += times * sum(map(int, blocks[layout.rows_of(number)]))
    assert int(stream_digest(layout, blocks)) == expected % 2**64


def test_tensors_that_change_places_change_the_streams_digest(make):
    layout = make.layout(make.spec("a"), make.spec("b"))
    digest = np.array([3, 5], np.uint64)
    assert stream_digest(layout, digest) != stream_digest(layout, digest[::-1])


def test_sums_that_overflow_do_so_quietly(make):
    layout = make.layout(make.spec(shape=(8,)), block_bytes=16)
    huge = Fingerprint(np.zeros(2, np.uint64), np.full((2, 7), 1e308), np.full((2, 16), -1e308))
    rolled = roll_up(layout, huge)
    assert np.isposinf(rolled.moments[0, 6])
    assert np.isneginf(rolled.sketch).all()
