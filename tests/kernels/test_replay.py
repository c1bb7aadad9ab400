import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.kernels import replay as door
from reprolab.kernels import twin_replay
from reprolab.kernels.replay import replay, schedule


def graph(waits, groups):
    group = np.full(len(waits), -1)
    for number, members in enumerate(groups):
        group[members] = number
    alone = group < 0
    group[alone] = np.arange(len(groups), len(groups) + alone.sum())
    first = np.cumsum([0, *map(len, waits)])
    before = np.array([node for found in waits for node in found], int)
    return group, first, before


def naive(waits, groups, durations):
    """Ends, by asking every node for the end of what it waits for."""
    peers = {node: members for members in groups for node in members}
    ends = {}

    def start(node):
        return max((end(other) for other in waits[node]), default=0.0)

    def end(node):
        if node not in ends:
            ends[node] = max(start(peer) for peer in peers.get(node, [node])) + durations[node]
        return ends[node]

    return np.array([end(node) for node in range(len(waits))])


@st.composite
def graphs(draw):
    layers = draw(st.integers(1, 6))
    width = draw(st.integers(1, 4))
    nodes = layers * width
    waits = [
        draw(st.lists(st.integers(0, node // width * width - 1), max_size=3, unique=True))
        if node >= width
        else []
        for node in range(nodes)
    ]
    # A group lies within one layer, so that no group can wait for itself.
    groups = [
        list(range(layer * width, layer * width + draw(st.integers(2, width))))
        for layer in range(layers)
        if width > 1 and draw(st.booleans())
    ]
    lanes = draw(st.integers(1, 3))
    numbers = st.lists(st.floats(0, 10), min_size=nodes * lanes, max_size=nodes * lanes)
    return waits, groups, np.array(draw(numbers)).reshape(nodes, lanes)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_ends_are_those_of_the_definition(some):
    waits, groups, durations = some
    _, ends = replay(schedule(*graph(waits, groups)), durations)
    for lane in range(durations.shape[1]):
        np.testing.assert_allclose(ends[:, lane], naive(waits, groups, durations[:, lane]))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_compiled_and_twin_agree_exactly(some):
    waits, groups, durations = some
    order = schedule(*graph(waits, groups))
    starts, ends = replay(order, durations)
    other_starts, other_ends = np.empty_like(durations), np.empty_like(durations)
    group, first, before = (array.astype(np.int32) for array in graph(waits, groups))
    members, bounds, ordered = twin_replay.order(group, first, before)
    assert ordered == len(bounds) - 1
    twin_replay.replay(members, bounds, first, before, durations, other_starts, other_ends)
    np.testing.assert_array_equal(starts, other_starts)
    np.testing.assert_array_equal(ends, other_ends)


def test_the_compiled_kernel_runs_here():
    assert door._kernel is not twin_replay


def test_members_of_a_communication_wait_for_the_last():
    # Two ranks: work, then a collective, then work.
    waits = [[], [0], [1], [], [3], [4]]
    order = schedule(*graph(waits, [[1, 4]]))
    starts, ends = replay(order, np.array([[1.0], [0.5], [1.0], [3.0], [0.5], [1.0]]))
    assert starts[:, 0].tolist() == [0.0, 1.0, 3.5, 0.0, 3.0, 3.5]
    assert ends[:, 0].tolist() == [1.0, 3.5, 4.5, 3.0, 3.5, 4.5]


def test_a_cycle_is_refused():
    with pytest.raises(ValueError, match="cycle"):
        schedule(*graph([[1], [0]], []))
    # Rank A enters X before Y, rank B enters Y before X.
    with pytest.raises(ValueError, match="cycle"):
        schedule(*graph([[], [0], [], [2]], [[0, 3], [1, 2]]))


@pytest.mark.parametrize(
    ("group", "first", "before", "said"),
    [
        ([0, 1], [0, 0], [], "first must have"),
        ([0, 1], [0, 1, 1], [5], "before must name"),
        ([0, 2], [0, 0, 0], [], "without gaps"),
        ([0, 1], [0, 2, 1], [0], "must not decrease"),
        ([-1, 0], [0, 0, 0], [], "without gaps"),
    ],
)
def test_nonsense_is_refused(group, first, before, said):
    with pytest.raises(ValueError, match=said):
        schedule(np.array(group), np.array(first), np.array(before, int))


def test_durations_must_fit():
    order = schedule(*graph([[], [0]], []))
    with pytest.raises(ValueError, match=r"\[2, lanes\]"):
        replay(order, np.ones((3, 1)))


def test_nothing_takes_no_time():
    order = schedule(*graph([], []))
    starts, ends = replay(order, np.empty((0, 4)))
    assert starts.shape == ends.shape == (0, 4)
