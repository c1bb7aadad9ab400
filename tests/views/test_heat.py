"""The heat map's codes."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.comparison import compare
from reprolab.views import heat as module
from reprolab.views.heat import EQUAL, HIGHEST, LOWEST, MISSING, NOT_FINITE, encode, extent, heat


def row(found, tensor):
    codes = np.frombuffer(found["frame"], np.uint8).reshape(len(found["tensors"]), -1)
    return codes[found["tensors"].index(tensor)].tolist()


@given(st.lists(st.floats(-30, 5), min_size=2), st.integers(-20, 0), st.integers(1, 12))
@settings(deadline=None, max_examples=50)
def test_codes_rise_with_the_distance_and_stay_in_their_range(logarithms, low, decades):
    values = np.sort(np.array(logarithms))
    codes = encode(values, (low, low + decades)).astype(int)
    assert (np.diff(codes) >= 0).all()
    assert codes.min() >= LOWEST
    assert codes.max() <= HIGHEST


def test_what_has_no_distance_has_its_own_code():
    codes = encode(np.array([np.nan, -np.inf, np.inf, -3.0, -1.0]), (-3, -1))
    assert codes.tolist() == [MISSING, EQUAL, NOT_FINITE, LOWEST, HIGHEST]


def test_the_extent_holds_measured_distances_only():
    rows = pl.DataFrame(
        {
            "kind": ["apart", "apart", "below resolution", "non-finite", "layout"],
            "relative": [2e-5, 3e-3, 1e-30, float("inf"), None],
        }
    )
    assert extent(rows) == (-5, -2)
    assert extent(rows.clear())[0] < extent(rows.clear())[1]


def test_the_map_is_equal_up_to_the_first_difference(parted):
    found = heat(parted, "grads", None, extent(parted.rows))
    assert found["steps"] == list(range(12))
    for tensor in found["tensors"]:
        assert row(found, tensor)[:3] == [EQUAL] * 3
    assert row(found, found["focus"])[3] > EQUAL
    assert found["focus"] == parted.first.tensor


def test_parameters_differ_one_step_later_than_the_gradients(parted):
    found = heat(parted, "params", None, extent(parted.rows))
    assert row(found, found["focus"])[:4] == [EQUAL] * 4
    assert row(found, found["focus"])[4] > EQUAL


def test_a_nan_has_its_own_look(trained):
    comparison = compare(trained("baseline"), trained("broken", broken_at=5))
    found = heat(comparison, "grads", None, extent(comparison.rows))
    assert row(found, "layers.0.bias")[5] == NOT_FINITE
    one = heat(comparison, "grads", 0, extent(comparison.rows))
    assert row(one, "layers.0.bias")[5] == NOT_FINITE
    assert row(one, "scale")[5] == EQUAL


def test_too_little_to_measure_gives_way_to_a_measured_distance(parted):
    rows = parted.rows.filter((pl.col("stream") == "grads") & (pl.col("step") == 3))
    tensor = rows["tensor"][0]
    tiny = rows.filter(pl.col("tensor") == tensor).with_columns(
        kind=pl.lit("below resolution", rows["kind"].dtype)
    )
    codes = np.full((1, 1), LOWEST, np.uint8)
    module._mark(codes, tiny, "grads", None, [3], [tensor])
    assert codes[0, 0] == module.UNRESOLVED
    both = pl.concat([tiny.head(1), rows.filter(pl.col("tensor") == tensor).tail(1)])
    codes = np.full((1, 1), LOWEST, np.uint8)
    module._mark(codes, both, "grads", None, [3], [tensor])
    assert codes[0, 0] == LOWEST
