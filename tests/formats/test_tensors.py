from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData
from reprolab.formats.tensors import InMemory, Mosaic, boxes
from reprolab.vocabulary import Region

shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


def place(region):
    return tuple(slice(a, a + n) for a, n in zip(region.offset, region.shape, strict=True))


@settings(max_examples=200, deadline=None)
@given(shapes, st.data())
def test_boxes_hold_a_range_of_elements_in_order(shape, data):
    size = prod(shape)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    values = np.arange(size).reshape(shape)
    found = [values[place(box)].reshape(-1) for box in boxes(shape, start, stop)]
    assert np.concatenate([*found, []]).tolist() == list(range(start, stop))
    assert len(found) <= max(1, 2 * len(shape))


def cut(region, data, depth=0):
    """A box cut at random into boxes."""
    dims = [dim for dim, extent in enumerate(region.shape) if extent > 1]
    if not dims or depth > 3 or not data.draw(st.booleans()):
        return [region]
    dim = data.draw(st.sampled_from(dims))
    at = data.draw(st.integers(1, region.shape[dim] - 1))
    low = Region(region.offset, (*region.shape[:dim], at, *region.shape[dim + 1 :]))
    offset = (*region.offset[:dim], region.offset[dim] + at, *region.offset[dim + 1 :])
    rest = (*region.shape[:dim], region.shape[dim] - at, *region.shape[dim + 1 :])
    return cut(low, data, depth + 1) + cut(Region(offset, rest), data, depth + 1)


@settings(max_examples=150, deadline=None)
@given(shapes, st.data())
def test_a_mosaic_of_any_cut_is_the_whole(shape, data):
    values = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    pieces = [
        (box, InMemory(values[place(box)], "float32"))
        for box in cut(Region((0,) * len(shape), shape), data)
    ]
    tensor = Mosaic("float32", shape, data.draw(st.permutations(pieces)))
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in shape]
    region = Region(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))
    assert (tensor.read(region) == values[place(region)]).all()
    if len(pieces) > 1:
        with pytest.raises(DamagedData, match="incomplete"):
            Mosaic("float32", shape, pieces[1:])


def piece(offset, shape, dtype="float32"):
    return Region(offset, shape), InMemory(np.zeros(shape, dtype), dtype)


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([piece((0, 0), (2, 4)), piece((0, 0), (2, 4))], "same elements"),
        ([piece((0, 0), (4, 2)), piece((0, 1), (4, 2))], "same elements"),
        ([piece((0, 0), (3, 4))], "incomplete"),
        ([piece((0, 0), (4, 4)), piece((0, 0), (1, 1))], "incomplete"),
        ([piece((3, 0), (4, 4))], "out of"),
        ([piece((0, 0), (4, 4), "float64")], "float64"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(pieces, complaint):
    with pytest.raises(DamagedData, match=complaint):
        Mosaic("float32", (4, 4), pieces)


def test_thousands_of_pieces_are_checked_quickly():
    pieces = [piece((row, column), (1, 1)) for row in range(60) for column in range(60)]
    assert Mosaic("float32", (60, 60), pieces).read(Region((5, 5), (2, 2))).shape == (2, 2)
