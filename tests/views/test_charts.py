"""The specifications of the line charts."""

import json
import math

import polars as pl
from vl_convert import vegalite_to_svg

from reprolab.views.charts import charts, distance_chart, loss_chart


def values(spec, key):
    """All rows of data, anywhere in a specification, that have `key`."""
    stack, rows = [spec], []
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            rows += [row for row in node.get("values", []) if isinstance(row, dict)]
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return [row for row in rows if key in row]


def test_both_charts_of_a_real_comparison_draw(parted):
    for spec in charts(parted, ["one", "two"]).values():
        svg = vegalite_to_svg(json.dumps(spec | {"width": 400}))
        assert svg.count("<path") > 10
        assert {param["name"] for param in spec["params"]} >= {"step", "stream"}


def test_exact_zeros_stand_apart_from_the_logarithms(parted):
    shown = values(charts(parted, ["one", "two"])["distance"], "relative")
    grads = {row["step"]: row for row in shown if row["stream"] == "grads"}
    assert [grads[step]["kind"] for step in range(4)] == ["zero"] * 3 + ["finite"]
    assert grads[0]["relative"] is None
    assert grads[3]["relative"] > 0


def test_losses_are_means_over_the_ranks():
    losses = pl.DataFrame(
        {"step": [0, 0, 0], "side": ["a", "a", "b"], "rank": [0, 1, 0], "loss": [1.0, 3.0, 5.0]}
    )
    shown = values(loss_chart(losses, ["x", "y"], None), "loss")
    assert {(row["run"], row["loss"]) for row in shown} == {("x", 2.0), ("y", 5.0)}


def test_values_that_are_not_finite_are_valid_json_and_marked():
    growth = pl.DataFrame(
        {"step": [0, 1, 2], "stream": ["grads"] * 3, "relative": [0.0, 1e-3, math.inf]}
    )
    spec = distance_chart(growth, 1)
    json.dumps(spec, allow_nan=False)
    kinds = [row["kind"] for row in values(spec, "kind")]
    assert kinds[:3] == ["zero", "finite", "not finite"]
    losses = pl.DataFrame(
        {"step": [0, 1], "side": ["a", "a"], "rank": [0, 0], "loss": [1.0, math.nan]}
    )
    json.dumps(loss_chart(losses, ["x", "y"], None), allow_nan=False)


def test_one_step_and_nothing_recorded(parted):
    first = parted.growth.filter(pl.col("step") == 3)
    vegalite_to_svg(json.dumps(distance_chart(first, 3) | {"width": 400}))
    assert loss_chart(parted.losses.clear(), ["x", "y"], None) == {}
    assert distance_chart(parted.growth.clear(), None) == {}
