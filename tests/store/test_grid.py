from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.store.grid import CHUNK_BYTES, Grid

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)


@settings(deadline=None)
@given(shapes, st.sampled_from([1, 2, 4, 8]), st.integers(8, 200))
def test_chunks_cut_the_elements_in_order_and_none_is_too_large(shape, itemsize, limit):
    grid = Grid.fit(shape, itemsize, limit)
    cut = [element for number in range(grid.size) for element in grid.elements(number)]
    assert cut == list(range(prod(shape)))
    assert grid.chunk_size * itemsize <= limit or 0 in shape


@settings(deadline=None)
@given(shapes, st.integers(8, 200))
def test_chunks_are_those_of_a_regular_grid(shape, limit):
    grid = Grid.fit(shape, 4, limit)
    numbers = np.arange(prod(shape)).reshape(shape)
    for number in range(grid.size):
        place = tuple(
            slice(at * part, (at + 1) * part)
            for at, part in zip(grid.index(number), grid.chunk, strict=True)
        )
        assert numbers[place].reshape(-1).tolist() == list(grid.elements(number))


@settings(deadline=None)
@given(shapes, st.integers(8, 100), st.integers(0, 300), st.integers(0, 300))
def test_overlapping_chunks_are_found_and_no_others(shape, limit, start, stop):
    grid = Grid.fit(shape, 4, limit)
    wanted = set(range(start, min(stop, prod(shape))))
    expected = [n for n in range(grid.size) if wanted.intersection(grid.elements(n))]
    assert list(grid.overlapping(start, stop)) == expected


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((), ()),
        ((3,), (3,)),
        ((0, 5), (1, 5)),
        ((50257, 768), (1359, 768)),
        ((1, 4096, 4096), (1, 256, 4096)),
        ((2, 3_000_000), (1, 1_000_000)),
    ],
)
def test_usual_shapes(shape, chunk):
    assert Grid.fit(shape, 4).chunk == chunk


def test_chunks_are_even_so_that_padding_is_little():
    shape = (1025, 1024)
    grid = Grid.fit(shape, 4)
    assert grid.size == 2
    assert grid.size * grid.chunk_size - prod(shape) <= shape[1]
    assert grid.chunk_size * 4 <= CHUNK_BYTES


@pytest.mark.parametrize(
    ("shape", "chunk"), [((4, 4), (2, 2)), ((4,), (0,)), ((4, 4), (4,)), ((4, 4, 4), (2, 1, 4))]
)
def test_chunks_that_are_not_contiguous_are_refused(shape, chunk):
    with pytest.raises(ValueError, match="chunk"):
        Grid(shape, chunk)
