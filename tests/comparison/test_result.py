"""The result as plain values, as text, and in words."""

import json
import re

import numpy as np

from reprolab.comparison import compare

KEYS = {
    "format", "same", "verdict", "a", "b", "reference", "compared", "first",
    "layout_differences", "configuration", "environment", "metrics", "notes",
}  # fmt: skip


def strict(value):
    return json.loads(json.dumps(value, allow_nan=False))


def test_the_same_as_plain_values(sound):
    said = strict(compare(sound, sound).to_dict())
    assert set(said) == KEYS
    assert said["same"] is True
    assert said["first"] is None
    assert said["a"] == {"run": "sound", "path": str(sound.path)}
    assert said["compared"]["first_step"] == 0
    assert said["compared"]["last_step"] == 6
    assert said["notes"] == []


def test_a_difference_as_plain_values(sound, train, at):
    def spoil(tensors):
        tensors["loss"][...] = np.nan

    other = train(
        "other",
        rename={"b1": "bias"},
        config={"optim": {"lr": 0.05}, "seed": float("nan")},
        change=at(2, "loss", (0,), spoil),
        metrics=lambda step, rank: {"accuracy": float("inf")},
    )
    said = strict(compare(sound, other).to_dict())
    assert set(said) == KEYS
    assert said["same"] is False
    assert said["first"]["values"][1] == "nan"
    assert said["first"]["stream"] == "loss"
    assert {"stream": "params", "tensor": "b1", "text": "b1 (float32 [6]) only in a"} in said[
        "layout_differences"
    ]
    assert said["configuration"] == [{"key": "seed", "a": "0", "b": "NaN"}]


def test_ranks_name_the_one_they_were_compared_with(sound):
    said = strict(compare(sound).to_dict())
    assert said["reference"] == 0
    assert said["a"] == said["b"]


def test_it_shows_its_verdict_as_text(sound):
    found = compare(sound, sound)
    assert found.verdict in repr(found)


def test_the_verdict_is_one_paragraph_of_sentences(sound, train, at):
    def nudge(tensors):
        tensors["w1"][0, 0] += 1

    for found in (
        compare(sound, sound),
        compare(sound),
        compare(sound, train("other", change=at(2, "params", (0, 1), nudge))),
    ):
        assert "\n" not in found.verdict
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", found.verdict):
            assert re.fullmatch(r"[A-Z].*\.", sentence), sentence
        assert "  " not in found.verdict
        assert "None" not in found.verdict


def test_runs_of_one_name_are_told_apart(train, training, tmp_path, at):
    def nudge(tensors):
        tensors["w1"][0, 0] += 1

    a = train("run")
    change = at(2, "params", (0, 1), nudge)
    b = training(change=change).write(tmp_path / "elsewhere", "run")
    assert "the runs run (a) and run (b) part" in compare(a, b).verdict.lower()
