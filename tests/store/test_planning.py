import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.store.planning import Offer, plan
from reprolab.vocabulary import TensorSpec


def offer(name="w", digest="a", shape=(4,), stream="params"):
    return Offer(stream, TensorSpec(name, "float32", shape), digest)


def test_equal_bytes_are_stored_once_and_the_work_is_shared():
    big = (4096, 1024)
    arrays = plan([[offer("x", shape=big), offer("y", shape=big)]] * 4, ())
    assert [(array.path, array.rank, array.holders) for array in arrays] == [
        ("params/x", None, (0, 1, 2, 3)),
        ("params/y", None, (0, 1, 2, 3)),
    ]
    work = [rank for array in arrays for rank in array.writers]
    assert sorted(work) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_rank_that_differs_from_most_keeps_its_own_copy():
    arrays = plan([[offer(digest=digest)] for digest in "abbb"], ())
    assert {(array.path, array.holders, array.digest) for array in arrays} == {
        ("params/w", (1, 2, 3), "b"),
        ("replicas/rank-00000/params/w", (0,), "a"),
    }
    assert all(set(array.writers) <= set(array.holders) for array in arrays)


def test_where_all_differ_the_lowest_rank_has_the_shared_copy():
    arrays = plan([[offer(digest=digest)] for digest in "cab"], ())
    assert [(array.rank, array.digest) for array in arrays] == [(None, "c"), (1, "a"), (2, "b")]


def test_ranks_that_disagree_on_a_shape_differ():
    arrays = plan([[offer(shape=(4,))], [offer(shape=(5,))], [offer(shape=(4,))]], ())
    assert [(array.rank, array.spec.shape) for array in arrays] == [(None, (4,)), (1, (5,))]


def test_a_private_stream_has_a_copy_for_each_rank():
    arrays = plan([[offer("torch", stream="rng")]] * 2, ("rng",))
    assert [array.path for array in arrays] == [
        "replicas/rank-00000/rng/torch",
        "replicas/rank-00001/rng/torch",
    ]
    assert [array.writers for array in arrays] == [(0,), (1,)]


def test_an_empty_tensor_is_nobodys_work_and_still_somebodys_metadata():
    (array,) = plan([[offer(shape=(0, 3))]] * 2, ())
    assert array.writers == ()
    assert array.lead == 0


def test_a_name_given_twice_is_refused():
    with pytest.raises(ValueError, match="'w' twice"):
        plan([[offer(), offer()]], ())


ranks = st.lists(
    st.lists(
        st.builds(offer, st.sampled_from("uvwxyz"), st.sampled_from("ab"), st.just((3, 500_000))),
        max_size=6,
        unique_by=lambda offer: offer.spec.name,
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(ranks)
def test_every_rank_finds_its_bytes_and_every_writer_has_what_it_writes(offers):
    arrays = plan(offers, ())
    for rank, held in enumerate(offers):
        for mine in held:
            copies = [array for array in arrays if array.spec.name == mine.spec.name]
            (own,) = [array for array in copies if rank in array.holders]
            assert own.digest == mine.digest
            assert own.rank in (None, rank)
            assert sum(array.rank is None for array in copies) == 1
    for array in arrays:
        assert set(array.writers) <= set(array.holders)
        assert len(array.writers) == array.grid.size
    assert len({array.path.lower() for array in arrays}) == len(arrays)
