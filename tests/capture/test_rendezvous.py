import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from reprolab.capture.rendezvous import StoreRendezvous, meet
from reprolab.errors import RankTimeout


@pytest.fixture
def ranks():
    """Three ranks that meet in a real store, each with a connection of its own."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))
    stores = [server, *(dist.TCPStore("127.0.0.1", server.port) for _ in range(2))]
    return [StoreRendezvous(store, rank, 3, "test") for rank, store in enumerate(stores)]


def together(ranks, action):
    results = [None] * len(ranks)

    def run(place, rank):
        try:
            results[place] = action(rank)
        except RankTimeout as problem:
            results[place] = problem

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_messages_come_in_rank_order_and_are_dropped_when_all_have_them(ranks):
    def talk(rank):
        heard = []
        for turn in range(3):
            rank.post(f"turn/{turn}", bytes([rank.rank, turn, 0, 255]))
            heard.append(rank.collect(f"turn/{turn}", timeout=20))
        return heard

    expected = [[bytes([rank, turn, 0, 255]) for rank in range(3)] for turn in range(3)]
    assert together(ranks, talk) == [expected] * 3
    store = ranks[0]._store
    assert not store.check(["test/turn/0/1"])
    assert store.check(["test/turn/2/1"])


def test_missing_ranks_are_named_after_the_time(ranks):
    ranks[0].post("here", b"")
    ranks[2].post("here", b"x")
    began = time.monotonic()
    with pytest.raises(RankTimeout, match=r"no answer for 0\.3 s") as caught:
        ranks[0].collect("here", timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert caught.value.where["rank"] == "1"


def test_a_rank_that_left_is_not_waited_for(ranks):
    ranks[0].post("here", b"")
    ranks[1].leave("ValueError at train.py:3")
    began = time.monotonic()
    with pytest.raises(
        RankTimeout, match=r"stopped recording: ValueError at train\.py:3"
    ) as caught:
        ranks[0].collect("here", timeout=30)
    assert time.monotonic() - began < 5
    assert caught.value.where["rank"] == "1"


def test_what_a_rank_said_before_it_left_is_heard(ranks):
    for rank in ranks:
        rank.post("last", b"word")
    ranks[1].leave("finished")
    assert ranks[0].collect("last", timeout=5) == [b"word"] * 3


def test_a_store_that_is_gone_is_a_rank_that_does_not_answer(ranks):
    class Gone:
        def check(self, keys):
            raise dist.DistNetworkError("connection reset by peer")

    lonely = StoreRendezvous(Gone(), 1, 2, "test")
    with pytest.raises(RankTimeout, match="look whether that has died"):
        lonely.collect("here", timeout=5)


def test_one_process_needs_no_meeting():
    assert meet() is None
