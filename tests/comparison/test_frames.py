"""Distances from sketches agree with exact ones, and what is not a distance looks different."""

import numpy as np
import polars as pl
import pytest

from reprolab.comparison import compare
from reprolab.comparison.frames import GROWTH, ROWS
from reprolab.errors import NothingToCompare


@pytest.fixture(scope="module")
def pair(training, folder):
    """Two runs, and every tensor of them as it was recorded."""
    held = {"a": {}, "b": {}}

    def keep(side):
        def lie(step, stream, rank, tensors):
            for name, value in tensors.items():
                held[side][step, stream, rank, name] = value.copy()

        return lie

    def change(step, stream, rank, tensors):
        if (step, stream) == (2, "grads_local") and rank == 1:
            tensors["w1"] *= np.float32(1.01)

    runs = [
        training(close=True, width=40, lie=keep("a")).write(folder(), "a"),
        training(close=True, width=40, lie=keep("b"), change=change).write(folder(), "b"),
    ]
    return compare(*runs), held


def test_there_is_a_row_for_every_tensor_that_differs_and_no_other(pair):
    found, held = pair
    expected = {
        key for key, value in held["a"].items() if value.tobytes() != held["b"][key].tobytes()
    }
    rows = found.rows.select("step", "stream", "rank", "tensor").rows()
    assert set(rows) == expected
    assert len(rows) == len(expected)
    assert found.rows.schema == ROWS


def test_distances_are_those_of_the_tensors_within_their_error(pair):
    found, held = pair
    inside = 0
    for row in found.rows.iter_rows(named=True):
        a, b = (
            held[side][row["step"], row["stream"], row["rank"], row["tensor"]].astype(float)
            for side in "ab"
        )
        exact = np.linalg.norm(a - b)
        assert row["kind"] == "apart"
        inside += abs(row["distance"] - exact) <= 3 * row["error"]
        norm = max(np.linalg.norm(a), np.linalg.norm(b))
        assert row["relative"] == pytest.approx(row["distance"] / norm)
    assert inside >= 0.97 * found.rows.height


def test_blocks_are_counted_as_they_differ(pair):
    found, held = pair
    for row in found.rows.iter_rows(named=True):
        a, b = (
            held[side][row["step"], row["stream"], row["rank"], row["tensor"]].tobytes()
            for side in "ab"
        )
        cuts = range(0, len(a), 64)
        assert row["blocks"] == len(cuts)
        assert row["differing"] == sum(a[i : i + 64] != b[i : i + 64] for i in cuts)


def test_growth_is_the_root_mean_square_over_the_ranks(pair):
    found, held = pair
    assert found.growth.schema == GROWTH
    for row in found.growth.iter_rows(named=True):
        squares = [
            np.square(value.astype(float) - held["b"][key].astype(float)).sum()
            for key, value in held["a"].items()
            if key[:2] == (row["step"], row["stream"])
        ]
        exact = np.sqrt(sum(squares) / 2)
        assert (row["distance"] == 0) == (exact == 0)
        assert row["distance"] == pytest.approx(exact, abs=4 * row["error"])


def test_growth_covers_every_step_and_stream_compared(pair):
    found, _ = pair
    assert set(found.growth["stream"].unique()) == set(found.streams)
    assert set(found.growth["step"].unique()) == set(found.steps.tolist())


def test_heat_tells_equal_from_different_and_from_missing(pair):
    found, _ = pair
    heat = found.heat("params")
    steps, tensors, values = heat
    assert tensors == ("w1", "b1", "w2")
    assert values.shape == (3, 7)
    assert np.isneginf(values[:, steps <= 2]).all()
    assert np.isfinite(values[0, steps > 2]).all()
    row = found.rows.filter(
        (pl.col("stream") == "params") & (pl.col("step") == 4) & (pl.col("tensor") == "w1")
    )
    assert values[0, 4] == pytest.approx(np.log10(row["relative"].max()))


def test_heat_of_one_rank_and_of_all(pair):
    found, _ = pair
    assert np.isneginf(found.heat("grads_local", 0).values[:, 2]).all()
    heat = found.heat("grads_local", 1)
    assert heat.tensors == ("w2", "b1", "w1")
    assert np.isfinite(heat.values[2, 2])
    assert np.isfinite(found.heat("grads_local").values[2, 2])
    assert found.heat().tensors == found.heat("grads_local").tensors
    with pytest.raises(NothingToCompare, match="these were: rng"):
        found.heat("activations")


def test_a_tensor_missing_at_a_step_is_missing_in_the_map(train):
    def lie(step, stream, rank, tensors):
        if stream == "batch" and step == 2:
            del tensors["0/y"]

    found = compare(train("a", lie=lie), train("b", lie=lie))
    assert found.same
    values = found.heat("batch").values
    assert np.isnan(values[1, 2])
    assert np.isneginf(np.delete(values, 2, axis=1)).all()


def test_a_difference_too_small_for_the_sketch_is_a_bound_not_a_number(train):
    def lie(step, stream, rank, tensors):
        if (step, stream) == (3, "buffers"):
            tensors["mean"][:] = 0.0
            tensors["mean"][1] = 1.0
            if sign:
                tensors["mean"][0] = -0.0

    sign = False
    a = train("a", lie=lie)
    sign = True
    found = compare(a, train("b", lie=lie))
    assert found.first.kind == "below resolution"
    assert "less than the sketch resolves" in found.verdict
    row = found.rows.row(0, named=True)
    assert row["kind"] == "below resolution"
    assert 0 < row["distance"] < 1e-12


def test_the_blocks_of_one_cell(pair):
    found, held = pair
    blocks = found.blocks(2, "grads_local", "w1", 1)
    a, b = (held[side][2, "grads_local", 1, "w1"] for side in "ab")
    assert blocks.height == -(-a.nbytes // 64)
    assert blocks["elements"].sum() == a.size
    assert blocks["start"].to_list() == list(range(0, a.size, 16))
    flat = a.reshape(-1) != b.reshape(-1)
    assert blocks["differs"].to_list() == [flat[i : i + 16].any() for i in range(0, a.size, 16)]
    assert blocks["a_max"].max() == a.max()
    equal = found.blocks(1, "params", "b1", 0)
    assert equal["kind"].to_list() == [None]
    for place in ((99, "params", "b1", 0), (1, "params", "nothing", 0), (1, "params", "b1", 7)):
        with pytest.raises(NothingToCompare):
            found.blocks(*place)


def test_losses_of_both_sides(pair):
    found, held = pair
    assert found.losses.columns == ["step", "side", "rank", "loss"]
    for step, side, rank, loss in found.losses.iter_rows():
        assert loss == pytest.approx(float(held[side][step, "loss", rank, "loss"]))
    assert found.losses.height == 2 * 2 * 6
