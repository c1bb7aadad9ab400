import pytest

from reprolab.errors import TooLarge
from reprolab.formats.memory import LIMIT, amount, reserve, within_limit


def test_what_fits_is_let_through():
    reserve(LIMIT, "a lot")
    within_limit(LIMIT, "a chunk")


def test_what_does_not_fit_is_named():
    with pytest.raises(TooLarge, match=r"the moon would take 1\.02e\+03 TiB.*by regions"):
        reserve(1 << 50, "the moon")
    with pytest.raises(TooLarge, match=r"a chunk takes 1\.0 GiB.*at most 1\.0 GiB"):
        within_limit(LIMIT + 1, "a chunk")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")],
)
def test_amounts_are_readable(size, text):
    assert amount(size) == text
