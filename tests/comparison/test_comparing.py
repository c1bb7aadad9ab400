"""Laws of comparing: an injected difference is found exactly where it is, whatever it is."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.comparison import compare
from reprolab.errors import NothingToCompare
from reprolab.vocabulary import STREAMS

RECORDED = [stream for stream in STREAMS if stream != "activations"]
SHAPES = {
    "rng": {"numpy": ((32,), 1)},
    "params": {"w1": ((8, 6), 4), "b1": ((6,), 4), "w2": ((6, 1), 4)},
    "buffers": {"mean": ((6,), 4)},
    "optimizer": {"w1.momentum": ((8, 6), 4), "param_groups.0.lr": ((), 8)},
    "batch": {"0/x": ((4, 8), 4), "0/y": ((4, 1), 4)},
    "loss": {"loss": ((), 4)},
    "grads_local": {"w1": ((8, 6), 4), "b1": ((6,), 4), "w2": ((6, 1), 4)},
    "grads": {"w1": ((8, 6), 4), "b1": ((6,), 4), "w2": ((6, 1), 4)},
    "grads_used": {"w1": ((8, 6), 4), "b1": ((6,), 4), "w2": ((6, 1), 4)},
}
BLOCK = 64


@st.composite
def injections(draw):
    stream = draw(st.sampled_from(RECORDED))
    step = draw(st.integers(0, 5))
    rank = draw(st.integers(0, 1))
    tensor = draw(st.sampled_from(sorted(SHAPES[stream])))
    shape, itemsize = SHAPES[stream][tensor]
    element = draw(st.integers(0, int(np.prod(shape)) - 1))
    # Never so high a bit that the training overflows in warnings.
    bit = draw(st.integers(0, 8 * itemsize - 1 if itemsize == 1 else 22))
    return step, stream, rank, tensor, element, bit


def flip(array, element, bit):
    kind = {1: np.uint8, 4: np.uint32, 8: np.uint64}[array.itemsize]
    array.reshape(-1).view(kind)[element] ^= kind(1 << bit)


def check(found, injected):
    step, stream, rank, tensor, element, _ = injected
    itemsize = SHAPES[stream][tensor][1]
    assert not found.same
    first = found.first
    assert (first.step, first.stream, first.rank, first.ranks) == (step, stream, rank, (rank,))
    assert first.tensor == tensor
    assert first.tensors == 1
    assert first.block == element * itemsize // BLOCK
    assert first.differing_blocks == 1
    assert tensor in found.verdict
    assert f"step {step}" in found.verdict


@settings(max_examples=25, deadline=None)
@given(injections())
def test_a_flipped_bit_anywhere_is_found_where_it_is(sound, training, folder, injected):
    step, stream, rank, tensor, element, bit = injected

    def change(now, where, on, tensors):
        if (now, where, on) == (step, stream, rank) and tensor in tensors:
            value = tensors[tensor]
            flip(value, element, bit)

    other = training(change=change).write(folder(), "other")
    check(compare(sound, other), injected)


@settings(max_examples=25, deadline=None)
@given(injections())
def test_a_difference_that_is_gone_at_once_is_found_too(sound, training, folder, injected):
    step, stream, rank, tensor, element, bit = injected

    def lie(now, where, on, tensors):
        if (now, where, on) == (step, stream, rank):
            flip(tensors[tensor], element, bit)

    other = training(lie=lie).write(folder(), "other")
    found = compare(sound, other)
    check(found, injected)
    assert found.rows.height == 1
    assert "gone again" in found.verdict
    assert found.growth.filter(found.growth["ranks"] > 0).height == 1


@settings(max_examples=6, deadline=None)
@given(injections(), injections())
def test_of_two_differences_the_earlier_one_comes_first(sound, training, folder, one, two):
    def lie(now, where, on, tensors):
        for step, stream, rank, tensor, element, bit in {one, two}:
            if (now, where, on) == (step, stream, rank):
                flip(tensors[tensor], element, bit)

    def place(injected):
        step, stream, rank, tensor, element, _ = injected
        order = list(SHAPES[stream]).index(tensor)
        if stream == "optimizer":
            order = ["w1.momentum", "param_groups.0.lr"].index(tensor)
        return step, STREAMS.index(stream), rank, order, element

    if place(one) == place(two):
        return
    other = training(lie=lie).write(folder(), "other")
    first = compare(sound, other).first
    step, stream, rank, tensor, _, _ = min(one, two, key=place)
    assert (first.step, first.stream, first.rank, first.tensor) == (step, stream, rank, tensor)


@settings(max_examples=5, deadline=None)
@given(injections())
def test_a_and_b_may_change_places(sound, training, folder, injected):
    step, stream, rank, tensor, element, bit = injected

    def change(now, where, on, tensors):
        if (now, where, on) == (step, stream, rank):
            flip(tensors[tensor], element, bit)

    other = training(change=change).write(folder(), "other")
    there, back = compare(sound, other), compare(other, sound)
    assert there.first.to_dict().keys() == back.first.to_dict().keys()
    for name in ("step", "stream", "rank", "ranks", "tensor", "block", "distance", "relative"):
        assert getattr(there.first, name) == getattr(back.first, name)
    assert there.rows.equals(back.rows)
    assert there.growth.equals(back.growth)


def test_a_run_is_the_same_as_itself_and_says_how_much_was_compared(sound):
    found = compare(sound, sound.path)
    assert found.same
    assert found.first is None
    assert found.rows.is_empty()
    assert (found.growth["distance"] == 0).all()
    for words in ("identical", "6 steps (0-5)", "ranks 0-1", "9 streams", "grads_used", "kB"):
        assert words in found.verdict
    compared = found.to_dict()["compared"]
    assert compared["ranks"] == [0, 1]
    assert compared["streams"] == RECORDED
    layouts = sound.fingerprints(0)
    bytes_of_a_rank = sum(
        sum(tensor.nbytes for tensor in layouts.layout(stream, step).tensors)
        for stream in layouts.streams
        for step in layouts.steps(stream)
    )
    assert compared["bytes"] == 2 * bytes_of_a_rank


def test_two_trainings_alike_are_identical(sound, train):
    assert compare(sound, train("again", close=True)).same


def test_micro_batches_that_change_places_are_seen(train, training, folder):
    def swap(now, where, rank, tensors):
        if (now, where, rank) == (2, "batch", 0):
            names = list(tensors)
            values = [tensors[name] for name in (*names[2:], *names[:2])]
            return dict(zip(names, values, strict=True))
        return None

    a, b = train("a", micro=2), train("b", micro=2, lie=swap)
    first = compare(a, b).first
    assert (first.step, first.stream, first.rank, first.tensor) == (2, "batch", 0, "0/x")


@pytest.mark.parametrize(
    ("stream", "tensor", "words"),
    [
        ("rng", "numpy", "during step 2 random numbers were drawn differently"),
        ("params", "w1", "the update of the parameters of step 2"),
        ("buffers", "mean", "the forward pass of step 2"),
        ("batch", "0/x", "it is the data"),
        ("loss", "loss", "the forward pass is the same"),
        ("grads_local", "b1", "the backward pass is the same"),
        ("grads", "w2", "the reduction of the gradients between the ranks is the same"),
        ("grads_used", "w2", "the unscaling or clipping of the gradients is the same"),
    ],
)
def test_the_verdict_names_the_stage_and_what_agreed(sound, train, at, stream, tensor, words):
    act = at(3, stream, (0, 1), lambda tensors: flip(tensors[tensor], 0, 3))
    found = compare(sound, train("other", change=act))
    assert words in found.verdict
    assert "on both ranks" in found.verdict
    assert "steps 0-2 in every stream compared" in found.verdict
    agreed = [name for name in RECORDED if RECORDED.index(name) < RECORDED.index(stream)]
    for name in agreed:
        assert name in found.verdict.split("in step 3 ")[1].split(".")[0]
    assert found.first.where


def test_a_setting_of_the_optimizer_that_changes_is_shown_with_both_values(sound, train, at):
    def faster(tensors):
        tensors["param_groups.0.lr"][...] = 0.055

    found = compare(sound, train("other", change=at(3, "optimizer", (0, 1), faster)))
    assert found.first.tensor == "param_groups.0.lr"
    assert found.first.values == (0.05, 0.055)
    assert "0.05 in sound and 0.055 in other" in found.verdict
    assert "a schedule, the loop or a configuration" in found.verdict


def test_a_setting_that_differs_with_the_parameters_is_named_as_well(sound, train):
    def change(step, stream, rank, tensors):
        if step == 3 and stream == "params":
            flip(tensors["w1"], 0, 3)
        if step == 3 and stream == "optimizer":
            tensors["param_groups.0.lr"][...] = 0.055

    found = compare(sound, train("other", change=change))
    assert found.first.stream == "params"
    assert "optimizer param_groups.0.lr (0.05 against 0.055)" in found.verdict


def test_the_onset_of_nan_is_visible(sound, train, at):
    def spoil(tensors):
        tensors["w1"][1, 1] = np.nan

    found = compare(sound, train("other", change=at(2, "grads_local", (1,), spoil)))
    assert found.first.kind == "non-finite"
    assert "none in sound and 1 in other are NaN or infinite" in found.verdict
    assert np.isposinf(found.heat("params").values).any()
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_only_some_streams_or_steps_can_be_asked_for(sound, train, at):
    other = train("other", change=at(2, "loss", (0, 1), lambda held: flip(held["loss"], 0, 3)))
    assert compare(sound, other, streams=["params", "grads"]).same
    assert compare(sound, other, steps=range(2)).same
    assert compare(sound, other, steps=2).first.stream == "loss"
    assert list(compare(sound, other, steps=[0, 4]).steps) == [0, 4]


def test_unknown_streams_and_nothing_in_common_are_refused(sound, train):
    with pytest.raises(NothingToCompare, match="streams must be among rng"):
        compare(sound, sound, streams=["batches"])
    with pytest.raises(NothingToCompare, match="sound holds"):
        compare(sound, sound, steps=[1000])
    other = train("other", streams=("grads_used",))
    with pytest.raises(NothingToCompare, match="other holds grads_used"):
        compare(sound, other, streams=["params"])


def test_metrics_that_differ_alone_are_reported_and_do_not_make_runs_differ(train):
    a = train("a", metrics=lambda step, rank: {"accuracy": 0.5})
    b = train("b", metrics=lambda step, rank: {"accuracy": 0.5 if step < 4 else 0.75})
    found = compare(a, b)
    assert found.same
    assert "accuracy from step 4 on (0.5 against 0.75)" in found.verdict
    assert found.metrics["step"].to_list() == [4, 4, 5, 5]


def test_a_loss_in_the_ledger_counts_where_no_fingerprint_tells(train, at):
    streams = ("params",)

    def change(step, stream, rank, tensors):
        if step >= 2 and stream == "loss":
            flip(tensors["loss"], 0, 3)

    found = compare(train("a", streams=streams), train("b", streams=streams, change=change))
    assert not found.same
    assert (found.first.step, found.first.stream, found.first.ranks) == (2, "loss", (0, 1))
    assert found.first.values is not None


def test_configurations_and_environments_that_differ_are_listed(sound, train):
    b = train("b", config={"optim": {"lr": 0.05}, "seed": 7}, environment={"threads": {"torch": 2}})
    found = compare(sound, b)
    assert found.same
    assert found.configuration.rows() == [("seed", "0", "7")]
    assert found.environment["key"].to_list() == ["threads.torch"]
    assert "The configuration differs (seed: 0 against 7), and the environment" in found.verdict
    assert "threads.torch: 1 against 2" in found.verdict
