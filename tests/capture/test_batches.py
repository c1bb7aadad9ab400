from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from reprolab.capture.batches import Batches, flatten
from reprolab.kernels import fingerprint

Pair = namedtuple("Pair", "left right")


@dataclass
class Example:
    tokens: torch.Tensor
    label: int


@pytest.mark.parametrize(
    ("batch", "paths"),
    [
        (torch.zeros(2), [""]),
        ((torch.zeros(2), torch.ones(1)), ["0", "1"]),
        ({"a": {"b/c": torch.zeros(1)}, "d~": 1}, ["a/b~1c", "d~0"]),
        (Pair(torch.zeros(1), [torch.zeros(1)]), ["left", "right/0"]),
        (Example(torch.zeros(1), 3), ["tokens", "label"]),
        (["text", "more"], [""]),
        ({"ids": [1, 2, 3], "object": object(), "none": None}, ["ids"]),
        ([], []),
        (np.array(["a", "b"]), []),
        ({"long": np.zeros(2, np.longdouble), "x": np.zeros(2)}, ["x"]),
    ],
)
def test_paths(batch, paths):
    assert [path for path, _ in flatten(batch)] == paths


def test_leaves():
    leaves = dict(flatten({"n": 2.5, "list": [1, 2], "text": "ab", "complex": torch.ones(2) * 1j}))
    assert leaves["n"].shape == ()
    assert leaves["n"] == 2.5
    assert leaves["list"].tolist() == [1, 2]
    assert bytes(leaves["text"]) == b'["ab"]'
    assert leaves["complex"].shape == (2, 2)


def test_micro_batches_follow_each_other():
    reader = Batches(1 << 20)
    first, second = torch.arange(6.0).reshape(2, 3), torch.arange(4)
    facts = [reader.read(first), reader.read({"x": second})]
    assert [fact["index"] for fact in facts] == [0, 1]
    assert [fact["sizes"] for fact in facts] == [
        {"samples": 2, "bytes": 24},
        {"samples": 4, "bytes": 32},
    ]
    layout, found = reader.take()
    assert layout.names == ("0", "1/x")
    expected = [fingerprint(tensor).digest[0] for tensor in (first, second)]
    assert found.digest.tolist() == expected
    assert reader.take() is None
    assert reader.read(first)["index"] == 0


def test_a_sample_is_the_same_wherever_it_stands():
    x, y = torch.randn(5, 7), torch.arange(5)
    order = torch.tensor([3, 1, 4, 0, 2])
    ids = Batches(1 << 20).read((x, y))["ids"]
    shuffled = Batches(1 << 20).read((x[order], y[order]))["ids"]
    assert shuffled == [ids[place] for place in order]
    assert len(set(ids)) == 5
    other = Batches(1 << 20).read((x, y.flip(0)))["ids"]
    assert sum(a == b for a, b in zip(ids, other, strict=True)) == 1  # The middle one.


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
def test_odd_sizes_of_samples(dtype):
    rows = np.arange(5 * 13).reshape(5, 13).astype(dtype)
    ids = Batches(1 << 20).read(rows)["ids"]
    assert ids == [Batches(1 << 20).read(rows[i : i + 1].copy())["ids"][0] for i in range(5)]


def test_labels_alone_in_numpy():
    ids = Batches(1 << 20).read({"label": np.array([3, 1, 3])})["ids"]
    assert ids[0] == ids[2] != ids[1]


def test_batches_that_are_read_while_shapes_change():
    reader = Batches(1 << 20)
    for length in (3, 5, 3):
        reader.read(torch.ones(2, length))
        layout, found = reader.take()
        assert layout.tensors[0].shape == (2, length)
        assert found.moments[0, 0] == 2 * length


def test_no_fingerprints_when_none_are_due():
    reader = Batches(1 << 20)
    assert reader.read(torch.ones(3), fingerprint=False)["ids"]
    assert reader.take() is None
