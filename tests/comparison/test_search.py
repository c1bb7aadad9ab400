"""Halving finds the first position of what persists, with few questions."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reprolab.comparison import search


@given(st.integers(1, 5000), st.data())
def test_halving_finds_where_a_persisting_difference_begins(count, data):
    begins = data.draw(st.integers(0, count - 1))
    asked = []

    def differs(position):
        asked.append(position)
        return position >= begins

    assert search.halve(differs, count) == begins
    assert len(asked) <= math.ceil(math.log2(count)) + 2


@given(st.lists(st.booleans(), max_size=40))
def test_halving_finds_a_position_that_differs_or_nothing(differs):
    found = search.halve(differs.__getitem__, len(differs))
    if found is None:
        assert not differs or not differs[-1]
    else:
        assert differs[found]
        assert found == 0 or not differs[found - 1]


class Stub:
    """A track over arrays that counts what it is asked."""

    def __init__(self, stream, rank, steps, differs):
        self.stream, self.rank, self.steps = stream, rank, np.array(steps)
        self._differs = np.array(differs)
        self.scanned = 0

    def differs(self, stop=None):
        self.scanned = len(self.steps) if stop is None else stop
        return self._differs[:stop]

    def differs_at(self, position):
        return bool(self._differs[position])


def test_a_persisting_difference_bounds_the_scan():
    steps = range(1000)
    params = Stub("params", 0, steps, [step >= 300 for step in steps])
    batch = Stub("batch", 0, steps, [step == 120 for step in steps])
    loss = Stub("loss", 0, steps, [step >= 120 for step in steps])
    step, stream, tracks = search.first([params, batch, loss])
    assert (step, stream, tracks) == (120, "batch", [batch])
    assert batch.scanned == 301
    assert loss.scanned == 121


def test_what_is_gone_again_is_found_without_anything_that_persists():
    steps = range(50)
    quiet = Stub("params", 0, steps, [False] * 50)
    two = [Stub("grads", rank, steps, [step == 17 for step in steps]) for rank in (3, 1)]
    assert search.first([quiet, *two]) == (17, "grads", [two[1], two[0]])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rng", "params", "batch", "grads"]),
            st.integers(0, 3),
            st.lists(st.booleans(), min_size=12, max_size=12),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda entry: entry[:2],
    )
)
def test_the_first_of_all_is_found_whatever_the_pattern(entries):
    from reprolab.vocabulary import STREAMS

    tracks = [Stub(stream, rank, range(12), differs) for stream, rank, differs in entries]
    expected = min(
        (
            (step, STREAMS.index(stream), rank)
            for stream, rank, differs in entries
            for step, different in enumerate(differs)
            if different
        ),
        default=None,
    )
    found = search.first(tracks)
    if expected is None:
        assert found is None
    else:
        step, stream, there = found
        assert (step, STREAMS.index(stream), there[0].rank) == expected
