import pytest

from reprolab.errors import RankTimeout
from reprolab.store.rendezvous import Alone, exchange


def test_alone_one_hears_oneself():
    assert exchange(Alone(), "a", {"b": [1, None]}, 1.0) == [{"b": [1, None]}]


def test_alone_nobody_else_will_answer():
    with pytest.raises(RankTimeout, match="'a'"):
        Alone().collect("a", 1.0)


def test_all_ranks_hear_all_in_order(on_ranks):
    answers = on_ranks(3, lambda seat: exchange(seat, "a", {"rank": seat.rank}, 10.0))
    assert answers == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3


def test_processes_meet_through_files_as_threads_do(meeting, tmp_path):
    seats = [meeting.FileMeeting(tmp_path, rank, 2) for rank in (0, 1)]
    seats[0].post("a/b", b"0")
    with pytest.raises(RankTimeout) as caught:
        seats[0].collect("a/b", 0.05)
    assert caught.value.where["rank"] == [1]
    seats[1].post("a/b", b"1")
    assert seats[0].collect("a/b", 1.0) == [b"0", b"1"]
