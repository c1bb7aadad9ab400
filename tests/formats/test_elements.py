import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData
from reprolab.formats.elements import Joined, Slice, Stored, Strided
from reprolab.formats.sources import Held
from reprolab.vocabulary import Region


class Counted(Held):
    """Bytes that no memory maps, with what was read of them."""

    def __init__(self, data):
        super().__init__(data, "counted")
        self.reads = []

    def read(self, offset, length):
        self.reads.append(length)
        return super().read(offset, length)

    def mapped(self):
        return None


def region_of(data, shape):
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in shape]
    box = Region(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))
    return box, tuple(slice(a, b) for a, b in bounds)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_strides_over_any_bytes(data):
    values = np.arange(6 * 7 * 8, dtype=np.int32).reshape(6, 7, 8)
    view = values.transpose(data.draw(st.permutations(range(3))))
    view = view[:: data.draw(st.integers(1, 3)), :, :: data.draw(st.integers(1, 2))]
    strides = tuple(step // 4 for step in view.strides)
    raw = values.tobytes()
    source = data.draw(st.sampled_from([Counted(raw), Held(raw, "held")]))
    tensor = Strided(Stored(source, "int32"), view.shape, strides)
    box, place = region_of(data, view.shape)
    assert (tensor.read(box) == view[place]).all()
    assert tensor.read(box).flags.c_contiguous


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_parts_joined_are_the_whole(data):
    values = np.arange(60, dtype=np.float32)
    cuts = sorted(data.draw(st.lists(st.integers(0, 60), max_size=5)))
    parts = [
        Slice(Stored(Held(values.tobytes(), "x"), "float32"), a, b)
        for a, b in zip([0, *cuts], [*cuts, 60], strict=True)
    ]
    whole = Joined(parts)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 60), st.integers(0, 60))))
    assert (whole.read(start, stop) == values[start:stop]).all()
    tensor = Strided(whole, (5, 12))
    box, place = region_of(data, (5, 12))
    assert (tensor.read(box) == values.reshape(5, 12)[place]).all()


def test_a_narrow_column_of_a_wide_matrix_is_not_paid_for_in_full():
    values = np.zeros((64, 1 << 15), np.float64)
    source = Counted(values.tobytes())
    tensor = Strided(Stored(source, "float64"), values.shape)
    assert tensor.read(Region((0, 100), (64, 3))).shape == (64, 3)
    assert sum(source.reads) < values.nbytes / 50


def test_neighbouring_rows_are_one_read():
    source = Counted(bytes(8000))
    Strided(Stored(source, "float64"), (10, 100)).read(Region((2, 0), (5, 100)))
    assert source.reads == [4000]


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((5,), (1,), 0), ((4,), (1,), 1), ((2, 2), (4, 1), 0), ((2,), (-1,), 1), ((2,), (1, 1), 0)],
)
def test_a_tensor_past_its_elements_is_refused(shape, strides, offset):
    with pytest.raises(DamagedData):
        Strided(Stored(Held(bytes(16), "x"), "float32"), shape, strides, offset)


def test_empty_and_single():
    source = Stored(Held(bytes(4), "x"), "float32")
    assert Strided(source, (0, 5), None, 0).read(Region((0, 2), (0, 2))).shape == (0, 2)
    assert Strided(source, ()).read(Region((), ())).shape == ()
    with pytest.raises(ValueError, match="one dtype"):
        Joined([source, Stored(Held(bytes(4), "x"), "int32")])
