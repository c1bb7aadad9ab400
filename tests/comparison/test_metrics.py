"""Losses, metrics and samples from ledgers."""

import json

import polars as pl
import pytest

from reprolab.comparison import compare
from reprolab.comparison.metrics import samples
from reprolab.tables import SCHEMAS


def batches(*rows):
    return pl.DataFrame(
        [
            {"attempt": 0, "rank": rank, "step": 3, "index": index, "ids": json.dumps(ids)}
            for rank, index, ids in rows
        ],
        schema=SCHEMAS["batches"],
    )


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ([(0, 0, ["b", "a"]), (1, 0, ["c", "d"])], "the same samples (4 in all) in another order"),
        ([(0, 0, ["c", "a"]), (1, 0, ["b", "d"])], "dealt to the ranks in another way"),
        ([(0, 0, ["x", "a"]), (1, 0, ["y", "d"])], "they share 2 of 4 samples"),
        ([(0, 0, ["a", "b"]), (1, 0, ["c", "d"])], "in the same order, with other content"),
    ],
)
def test_samples_tell_order_dealing_and_choice_apart(theirs, words):
    ours = batches((0, 0, ["a", "b"]), (1, 0, ["c", "d"]))
    assert words in samples(ours, batches(*theirs), 3)


def test_samples_without_identities_say_nothing():
    ours = batches((0, 0, ["a", "b"]))
    assert samples(ours, batches((0, 0, [])), 3) is None
    assert samples(ours, ours, 4) is None


def test_what_the_samples_say_is_in_the_verdict(sound, train, at):
    def other(tensors):
        tensors["0/x"] += 1

    found = compare(sound, train("other", change=at(2, "batch", (0,), other)))
    assert "by the identities of their samples" in found.verdict.lower()


def test_nan_is_equal_to_nan_in_metrics(train):
    a = train("a", metrics=lambda step, rank: {"score": float("nan")})
    b = train("b", metrics=lambda step, rank: {"score": float("nan")})
    assert compare(a, b).metrics.is_empty()
