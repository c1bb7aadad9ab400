import numpy as np
import pytest

from reprolab.diagnosis.straggling.clocks import align


def record(
    ranks=6, steps=80, *, offset=None, drift=None, noise=1e-5, jump=None, groups=None, seed=0
):
    """Ends of three collectives a step on every rank; returns what `align` takes, and the truth."""
    rng = np.random.default_rng(seed)
    offset = np.zeros(ranks) if offset is None else np.asarray(offset, float)
    drift = np.zeros(ranks) if drift is None else np.asarray(drift, float)
    rows = []
    for step in range(steps):
        for number in range(3):
            end = 1.0 * step + 0.3 * number + rng.uniform(0, 0.05)
            for members in groups or [range(ranks)]:
                for rank in members:
                    seen = end + noise * rng.standard_normal()
                    seen += offset[rank] + drift[rank] * end
                    if jump and rank == jump[0] and step >= jump[1]:
                        seen += jump[2]
                    rows.append((rank, step, (step * 3 + number) * 10 + members[0], seen, end))
    rank, step, communication, seen, end = (np.array(column) for column in zip(*rows, strict=True))
    number = np.unique(communication, return_inverse=True)[1]
    return (rank.astype(int), step.astype(int), number, seen), end


def error(clocks, seen, truth):
    """Largest disagreement of corrected times with the truth, up to one common shift."""
    rank, step, _, moment = seen
    row, lane = np.searchsorted(clocks.ranks, rank), np.searchsorted(clocks.steps, step)
    left = clocks.correct(row, lane, moment) - truth
    return np.abs(left - np.median(left)).max()


def test_synchronised_clocks_are_left_alone():
    seen, _ = record()
    clocks = align(*seen)
    assert not clocks.corrected
    np.testing.assert_array_equal(clocks.correct(seen[0], seen[1], seen[3]), seen[3])
    assert "were used as they are" in clocks.sentence


@pytest.mark.parametrize("spread", [0.05, 10.0, 1e6])
def test_offsets_are_found(spread):
    rng = np.random.default_rng(1)
    seen, truth = record(offset=rng.uniform(-spread, spread, 6))
    clocks = align(*seen)
    assert clocks.corrected
    assert error(clocks, seen, truth) < 1e-4
    assert 0 < clocks.error < 1e-5
    assert "they were aligned" in clocks.sentence


def test_drifts_are_found():
    rng = np.random.default_rng(2)
    drift = rng.uniform(-1e-4, 1e-4, 6)
    seen, _ = record(offset=rng.uniform(-5, 5, 6), drift=drift, steps=300)
    clocks = align(*seen)
    # The reference's own drift cannot be seen; what is left of it is the same for all ranks.
    rank, step, _, moment = seen
    row = np.searchsorted(clocks.ranks, rank)
    left = clocks.correct(row, np.searchsorted(clocks.steps, step), moment)
    apart = [np.ptp(left[seen[2] == number]) for number in np.unique(seen[2])]
    assert max(apart) < 2e-4
    relative = clocks.drift - clocks.drift.mean()
    np.testing.assert_allclose(relative, drift - drift.mean(), atol=2e-6)


def test_a_third_of_wild_ends_does_no_harm():
    rng = np.random.default_rng(3)
    seen, truth = record(offset=rng.uniform(-1, 1, 6))
    rank, step, number, moment = seen
    # Rank 4 leaves a third of the collectives up to half a second late.
    wild = (rank == 4) & (number % 3 == 0)
    moment[wild] += rng.uniform(0.1, 0.5, wild.sum())
    clocks = align(*seen)
    row, lane = np.searchsorted(clocks.ranks, rank), np.searchsorted(clocks.steps, step)
    left = (clocks.correct(row, lane, moment) - truth)[~wild]
    assert np.abs(left - np.median(left)).max() < 1e-3


def test_a_jump_is_corrected_and_said():
    seen, truth = record(jump=(2, 50, 33.0))
    clocks = align(*seen)
    assert error(clocks, seen, truth) < 1e-3
    assert "The clock of rank 2 jumped." in clocks.sentence


def test_ranks_are_reached_over_others():
    """0 and 1 meet, 1 and 2 meet, 2 and 3 meet; 0 and 3 never do."""
    offset = np.array([0.0, 5.0, -3.0, 8.0])
    seen, truth = record(4, offset=offset, groups=[(0, 1), (1, 2), (2, 3)])
    clocks = align(*seen)
    assert clocks.aligned.all()
    assert error(clocks, seen, truth) < 1e-3


def test_unconnected_ranks_are_not_aligned():
    seen, _ = record(4, groups=[(0, 1), (2, 3)])
    clocks = align(*seen)
    assert clocks.aligned.sum() == 2


def test_without_collectives_nothing_is_known():
    nothing = np.empty(0, int)
    clocks = align(nothing, nothing, nothing, np.empty(0))
    assert np.isnan(clocks.error)
    assert "were taken to agree" in clocks.sentence
