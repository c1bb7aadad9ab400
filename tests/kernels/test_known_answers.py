"""The kernels against answers from big integers (``known_answers.py`` in this folder)."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from reprolab.kernels import Fingerprint, fingerprint, twin_fingerprint
from reprolab.kernels.regions import whole
from reprolab.kernels.tensors import flat_bytes
from reprolab.vocabulary import ITEMSIZE

HERE = Path(__file__).parent
ANSWERS = json.loads((HERE / "known_answers.json").read_text())


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("known_answers", HERE / "known_answers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vectors_are_what_the_script_gives(script):
    assert script.answers() == ANSWERS


def test_every_dtype_has_vectors():
    assert {case["dtype"] for case in ANSWERS} == set(ITEMSIZE)


@pytest.mark.parametrize("kernel", ["door", "twin"])
@pytest.mark.parametrize(
    "case", ANSWERS, ids=lambda case: f"{case['dtype']}-{case['count']}-{case['block_bytes']}"
)
def test_kernels_give_the_known_answers(case, kernel, script):
    data = np.frombuffer(script.content(case["dtype"], case["count"], case["seed"]), np.uint8)
    array = data.view(case["dtype"])
    if kernel == "door":
        found = fingerprint(array, block_bytes=case["block_bytes"])
    else:
        found = Fingerprint.zeros(len(case["blocks"]))
        twin_fingerprint.accumulate(
            flat_bytes(array), case["dtype"], whole(array.size), case["block_bytes"], found
        )
    digest = [int(block["digest"], 16) for block in case["blocks"]]
    moments = np.array([block["moments"] for block in case["blocks"]], np.float64)
    sketch = np.array([block["sketch"] for block in case["blocks"]], np.float64)
    assert found.digest.tolist() == digest
    np.testing.assert_array_equal(found.moments[:, :5], moments[:, :5])
    size = np.sqrt(moments[:, 6:])
    with np.errstate(over="ignore", invalid="ignore"):
        close = np.abs(found.sketch - sketch) <= 2.0**-22 * size + np.abs(sketch) * 1e-15
        assert (close | ~np.isfinite(found.sketch) | ~np.isfinite(size)).all()
        np.testing.assert_allclose(found.moments[:, 6], moments[:, 6], rtol=1e-6)
        total = np.abs(found.moments[:, 5] - moments[:, 5])
        assert ((total <= 2.0**-22 * size[:, 0]) | ~np.isfinite(size[:, 0])).all()
