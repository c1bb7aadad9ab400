import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.kernels import (
    Fingerprint,
    difference,
    fingerprint,
    fingerprint_stream,
    merge,
    torch_fingerprint,
)
from reprolab.kernels.regions import runs, whole
from reprolab.vocabulary import ITEMSIZE, Layout, Region, TensorSpec

torch = pytest.importorskip("torch")


def to_torch(array):
    copy = np.array(array, copy=True)
    return (
        torch.from_numpy(copy.reshape(-1).view(np.uint8))
        .view(getattr(torch, array.dtype.name))
        .reshape(array.shape)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(ITEMSIZE)),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_torch_and_numpy_tensors_have_one_fingerprint(random_array, dtype, shape, seed, special):
    array = random_array(dtype, shape, seed, special=special)
    tensor = to_torch(array)
    for one, other in (
        (array, tensor),
        (array.T, tensor.permute(2, 1, 0)),
        (array[1:], tensor[1:]),
    ):
        a, b = fingerprint(one, block_bytes=64), fingerprint(other, block_bytes=64)
        np.testing.assert_array_equal(a.digest, b.digest)
        np.testing.assert_array_equal(a.moments, b.moments)
        np.testing.assert_array_equal(a.sketch, b.sketch)
    assert difference(tensor, tensor.clone()).same


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(ITEMSIZE)),
    st.integers(1, 3000),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.data(),
)
def test_torch_operations_give_the_same_integers(random_array, dtype, size, seed, special, data):
    array = random_array(dtype, (size,), seed, special=special)
    low = data.draw(st.integers(0, size - 1))
    high = data.draw(st.integers(low + 1, size))
    block_bytes = data.draw(st.sampled_from([64, 1 << 20]))
    for stretch, shard in (
        (whole(size), array),
        (runs((size,), Region((low,), (high - low,))), array[low:high]),
    ):
        found = Fingerprint.zeros(-(-array.nbytes // block_bytes))
        torch_fingerprint.accumulate(to_torch(shard), dtype, stretch, block_bytes, found)
        expected = (
            fingerprint(array, block_bytes=block_bytes)
            if shard is array
            else fingerprint(
                shard, shape=(size,), region=Region((low,), (high - low,)), block_bytes=block_bytes
            )
        )
        if expected.border is None:
            np.testing.assert_array_equal(found.digest, expected.digest)
        np.testing.assert_array_equal(found.moments[:, :5], expected.moments[:, :5])
        with np.errstate(all="ignore"):
            numbers = shard.astype(np.float64)
            bound = 2.0**-18 * np.abs(numbers[np.isfinite(numbers)]).sum()
        if np.isfinite(expected.moments[:, 6]).all():
            assert np.abs(found.sketch - expected.sketch).max() <= bound
            assert np.abs(found.moments[:, 5] - expected.moments[:, 5]).max() <= bound
            np.testing.assert_allclose(found.moments[:, 6], expected.moments[:, 6], rtol=2.0**-18)


def test_blocks_on_a_device_take_the_torch_path(monkeypatch, random_array):
    # No GPU is needed to see that the door sends what is not on the host through torch operations.
    door = sys.modules["reprolab.kernels.fingerprint"]
    array = random_array("bfloat16", (40, 50), 3)
    layout = Layout((TensorSpec("w", "bfloat16", (40, 50)), TensorSpec("b", "bool", (9,))), 256)
    tensors = [to_torch(array), None]
    expected = fingerprint_stream(tensors, layout)
    regions = [Region((0, 0), (40, 17)), Region((0, 17), (40, 33))]
    pieces = [to_torch(array)[:, :17], to_torch(array)[:, 17:]]
    monkeypatch.setattr(door, "locate", lambda tensor: (tensor.contiguous(), None))
    found = fingerprint_stream(tensors, layout)
    np.testing.assert_array_equal(found.digest, expected.digest)
    np.testing.assert_allclose(found.sketch, expected.sketch, rtol=1e-6, atol=1e-6)
    parts = [
        fingerprint(piece, shape=(40, 50), region=region, block_bytes=256)
        for piece, region in zip(pieces, regions, strict=True)
    ]
    np.testing.assert_array_equal(merge(parts).digest, expected.rows(layout.rows_of(0)).digest)


def test_lazy_and_strange_tensors():
    weight = torch.randn(6, 5, requires_grad=True)
    assert fingerprint(weight).digest == fingerprint(weight.detach().numpy()).digest
    negated = torch.randn(8, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    assert fingerprint(negated).digest == fingerprint(negated.resolve_neg().numpy()).digest
    layout = Layout((TensorSpec("n", "float32", (8,)),))
    assert fingerprint_stream([negated], layout).digest == fingerprint(negated).digest
    expanded = torch.tensor([3.0]).expand(40)
    assert fingerprint(expanded).digest == fingerprint(np.full(40, 3, np.float32)).digest
    assert len(fingerprint(torch.empty(0))) == 0
    assert fingerprint(torch.tensor(True)).moments[0, 5] == 1


def test_tensors_without_data_are_refused():
    with pytest.raises(TypeError, match="on device meta"):
        fingerprint(torch.empty(3, device="meta"))
    with pytest.raises(TypeError, match=r"torch\.sparse_coo"):
        fingerprint(torch.eye(3).to_sparse())


def test_flushed_subnormals_change_nothing(random_array):
    tiny = torch.from_numpy(random_array("float16", (500,), 1, special=True).copy())
    small = (torch.randn(500) * 1e-39).bfloat16()
    before = [fingerprint(tensor) for tensor in (tiny, small)]
    gap = difference(small, small.flip(0))
    assert gap.max_abs > 0
    assert torch.set_flush_denormal(True)
    try:
        after = [fingerprint(tensor) for tensor in (tiny, small)]
        again = difference(small, small.flip(0))
        assert float(torch.tensor(1e-40, dtype=torch.float32) * 1) == 0, "the mode stays set"
    finally:
        torch.set_flush_denormal(False)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a.moments, b.moments)
        np.testing.assert_array_equal(a.sketch, b.sketch)
    assert gap == again
