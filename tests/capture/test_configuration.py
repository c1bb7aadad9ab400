import argparse
import enum
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from reprolab.capture.configuration import plain


class Mode(enum.Enum):
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Settings:
    lr: float
    mode: Mode


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, 2: None}, {"a": 1, "2": None}),
        (Settings(0.1, Mode.FAST), {"lr": 0.1, "mode": "fast"}),
        (argparse.Namespace(x=(1, 2)), {"x": [1, 2]}),
        (Level.HIGH, 3),
        (float("nan"), "nan"),
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (torch.tensor([[1.5]]), [[1.5]]),
        (torch.zeros(5000), "Tensor of shape (5000,)"),
        (np.zeros(5000), "ndarray of shape (5000,)"),
        (torch.float16, "torch.float16"),
        (Path("a/b"), "a/b"),
        ({"b", "a"}, ["a", "b"]),
        (F.gelu, None),
        (Opaque(), f"{__name__}.Opaque"),
        (Opaque, f"{__name__}.Opaque"),
    ],
)
def test_plain(value, expected):
    found = plain(value)
    assert json.loads(json.dumps(found)) == found
    if expected is not None:
        assert found == expected


def test_the_same_settings_are_the_same_text_in_every_run():
    assert plain({"f": F.gelu, "o": Opaque()}) == plain({"f": F.gelu, "o": Opaque()})
