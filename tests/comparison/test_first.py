"""The first difference, down to the bit, reading no more than it takes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.comparison import compare
from reprolab.store import Checkpoint, FingerprintReader


def flip(name, element, bit):
    def act(tensors):
        tensors[name].reshape(-1).view(np.uint32)[element] ^= np.uint32(1 << bit)

    return act


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 47), st.integers(0, 22), st.integers(0, 1), st.sampled_from([0, 3, 6]))
def test_a_checkpoint_gives_the_element_and_its_bits(
    sound, training, folder, at, element, bit, rank, step
):
    change = at(step, "params", (rank,), flip("w1", element, bit))
    other = training(checkpoint_every=3, change=change).write(folder(), "other")
    first = compare(sound, other).first
    assert first.element.index == divmod(element, 6)
    assert first.element.flipped == (bit,)
    assert first.differing_elements == 1
    ours, theirs = (
        run.checkpoint(step).read("params", "w1", rank=rank)[divmod(element, 6)]
        for run in (sound, other)
    )
    assert (first.element.a, first.element.b) == (ours, theirs)


def test_one_flipped_bit_is_called_so(sound, train, at):
    found = compare(
        sound, train("other", checkpoint_every=3, change=at(3, "params", (1,), flip("w1", 20, 27)))
    )
    assert "on rank 1 alone" in found.verdict
    assert "exactly one element differs, [3, 2]" in found.verdict.lower()
    assert "bit 27 alone (exponent" in found.verdict
    assert "it looks like a flipped bit" in found.verdict


def test_the_lowest_bit_may_be_rounding(sound, train, at):
    found = compare(
        sound, train("other", checkpoint_every=3, change=at(3, "params", (1,), flip("w1", 20, 0)))
    )
    assert "which rounding may change as well" in found.verdict
    assert "flipped bit" not in found.verdict


def test_many_elements_are_no_flipped_bit(sound, train, at):
    def double(tensors):
        tensors["w1"] *= 2

    found = compare(sound, train("b", checkpoint_every=3, change=at(3, "params", (0, 1), double)))
    assert found.first.differing_blocks == 3
    assert found.first.differing_elements == 16
    assert "16 elements of that block differ, the first at [0, 0]" in found.verdict
    assert "flipped" not in found.verdict


def test_between_ranks_the_element_comes_from_the_ranks_own_copies(train, at):
    run = train("run", ranks=3, checkpoint_every=3, change=at(3, "params", (2,), flip("w1", 5, 3)))
    first = compare(run).first
    assert first.ranks == (2,)
    assert first.element.index == (0, 5)
    assert first.element.flipped == (3,)


@pytest.mark.parametrize(
    ("step", "stream", "why"),
    [
        (2, "params", "only where both hold a checkpoint of step 2: sound has those of steps 0"),
        (3, "grads", "not grads"),
    ],
)
def test_why_there_is_no_element_is_said(sound, train, at, step, stream, why):
    change = at(step, stream, (0, 1), flip("w1", 3, 3))
    first = compare(sound, train("other", checkpoint_every=3, change=change)).first
    assert first.element is None
    assert why in first.why_no_element


def test_a_run_without_checkpoints_is_named(sound, train, at):
    found = compare(sound, train("bare", change=at(3, "params", (0, 1), flip("w1", 3, 3))))
    assert "bare has none" in found.first.why_no_element
    assert "bare has none" in found.verdict


def test_a_single_element_shows_in_the_sketch_without_a_checkpoint(sound, train, at):
    found = compare(sound, train("bare", change=at(2, "params", (1,), flip("w1", 3, 20))))
    assert found.first.lanes == 1
    assert "as the difference of a single element does" in found.verdict


def test_a_damaged_chunk_is_the_reason(sound, train, at):
    change = at(3, "params", (0, 1), flip("w1", 3, 20))
    other = train("other", checkpoint_every=3, change=change)
    for chunk in (other.path / "checkpoints" / "000000000003" / "params" / "w1").glob("c.*"):
        data = bytearray(chunk.read_bytes())
        data[0] ^= 1
        chunk.write_bytes(bytes(data))
    first = compare(sound, other).first
    assert first.tensor == "w1"
    assert first.why_no_element.startswith("the checkpoint could not be read")


def test_other_block_sizes_compare_by_whole_tensors(sound, train, at):
    change = at(3, "params", (1,), flip("w1", 20, 20))
    found = compare(sound, train("other", block_bytes=128, checkpoint_every=3, change=change))
    assert (found.first.step, found.first.tensor, found.first.block) == (3, "w1", None)
    assert "blocks of different sizes" in found.first.why_no_element
    row = found.rows.filter(found.rows["tensor"] == "w1").row(0, named=True)
    assert row["differing"] is None


def test_a_scalar_needs_no_checkpoint(sound, train, at):
    def nudge(tensors):
        tensors["loss"].reshape(1).view(np.uint32)[0] ^= 1 << 5

    first = compare(sound, train("other", change=at(1, "loss", (0, 1), nudge))).first
    assert first.element.flipped == (5,)
    assert first.values == (first.element.a, first.element.b)
    assert np.float32(first.values[0]) == first.values[0]


class Counting:
    """Counts what is read from fingerprints and checkpoints."""

    def __init__(self, monkeypatch):
        self.rolled, self.blocks, self.chunks = [], [], []
        for name in ("tensor_digests", "tensor_moments", "tensor_sketches"):
            self._count(monkeypatch, FingerprintReader, name, self.rolled)
        self._count(monkeypatch, FingerprintReader, "fingerprint", self.blocks)
        self._count(monkeypatch, Checkpoint, "block", self.chunks)

    @staticmethod
    def _count(monkeypatch, kind, name, into):
        whole = getattr(kind, name)

        def counted(self, *arguments, **options):
            into.append((name, *arguments))
            return whole(self, *arguments, **options)

        monkeypatch.setattr(kind, name, counted)


def test_only_the_rows_and_chunks_of_the_first_difference_are_read(train, at, monkeypatch):
    a = train("a", close=True, steps=30, checkpoint_every=10)
    change = at(10, "params", (0, 1), flip("w1", 40, 20))
    b = train("b", steps=30, checkpoint_every=10, change=change)
    read = Counting(monkeypatch)
    found = compare(a, b)
    assert found.first.element.index == (6, 4)
    assert {(entry[1], entry[2]) for entry in read.rolled} == {
        ("params", 10),
        ("optimizer", 10),
        ("params", 30),
    }
    assert {entry[1:] for entry in read.blocks} == {("params", 10), ("params", 30)}
    assert [entry[1:] for entry in read.chunks] == [("params", "w1", 2)] * 2
    before = len(read.rolled)
    found.rows  # noqa: B018
    assert len(read.rolled) > 10 * before


def test_runs_that_are_the_same_need_no_rows_at_all(sound, train, monkeypatch):
    other = train("other")
    read = Counting(monkeypatch)
    found = compare(sound, other)
    assert found.same
    assert found.rows.is_empty()
    assert not read.rolled
    assert not read.blocks


def test_replicas_that_agree_are_read_once(train, at, monkeypatch):
    def double(tensors):
        tensors["w1"] *= 2

    a = train("a", ranks=4, steps=3)
    b = train("b", ranks=4, steps=3, change=at(0, "params", range(4), double))
    found = compare(a, b, streams=["params"])
    read = Counting(monkeypatch)
    assert found.rows["rank"].unique().sort().to_list() == [0, 1, 2, 3]
    assert len(read.rolled) == 3 * 2 * 4


def test_the_first_difference_is_plain_json(sound, train, at):
    change = at(3, "params", (1,), flip("w1", 20, 30))
    found = compare(sound, train("other", checkpoint_every=3, change=change))
    text = json.loads(json.dumps(found.first.to_dict(), allow_nan=False))
    assert text["element"]["flipped"] == [30]
    assert text["ranks"] == [1]
