"""The two line charts of a comparison, as Vega-Lite specifications written by Altair.

Both know two parameters that the page moves without asking the kernel: ``step``, where the cursor
stands, and ``stream``, which line is emphasised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reprolab.vocabulary import STREAMS

if TYPE_CHECKING:
    from reprolab.comparison import Comparison

HEIGHT = 92
"""Height of the plotting area in CSS pixels."""

STRIP = 18
"""Height kept below a logarithmic axis for values that are exactly zero."""

SIDES = ("#2f81c9", "#d9730d")
"""Colours of the runs a and b; b is dashed as well, so that equal lines are seen to be two."""

ALARM = "#e15759"
"""Colour of what is not finite."""

HUES = dict(
    zip(
        STREAMS,
        (
            "#8c8c8c", "#2f81c9", "#b07aa1", "#c9a227", "#d9730d",
            "#9c755f", "#e15759", "#59a14f", "#2a9d8f", "#7a5fd0",
        ),
        strict=True,
    )
)  # fmt: skip
"""One colour a stream, the same in every chart."""


def loss_chart(losses: pl.DataFrame, names: Sequence[str], first: int | None) -> dict[str, Any]:
    """Loss of both runs over the steps, mean over the ranks.

    Parameters
    ----------
    losses : polars.DataFrame
        Columns ``step``, ``side`` ("a" or "b"), ``rank``, ``loss``.
    names : sequence of str
        How to call the two runs.
    first : int or None
        Step of the first difference.

    Returns
    -------
    dict
        A Vega-Lite specification, or an empty one where no loss was recorded.
    """
    if losses.is_empty():
        return {}
    means = losses.group_by("step", "side").agg(pl.col("loss").mean()).sort("side", "step")
    called = dict(zip("ab", names, strict=True))
    values = [
        {"step": step, "run": called[side], "loss": _finite(loss)}
        for step, side, loss in means.select("step", "side", "loss").iter_rows()
    ]
    present = [called[side] for side in means["side"].unique().sort()]
    lines = (
        alt.Chart(alt.Data(values=values))
        .mark_line(strokeWidth=1.8, clip=True, point=means["step"].n_unique() == 1)
        .encode(
            x=_steps(means["step"]),
            y=alt.Y("loss:Q", scale=alt.Scale(zero=False), axis=_axis("loss")),
            color=alt.Color(
                "run:N", scale=alt.Scale(domain=present, range=list(SIDES)), legend=_legend()
            ),
            strokeDash=alt.StrokeDash(
                "run:N", scale=alt.Scale(domain=present, range=[[1, 0], [5, 3]]), legend=_legend()
            ),
            tooltip=["run:N", "step:Q", alt.Tooltip("loss:Q", format=".6g")],
        )
    )
    return _with_cursor([lines], first)


def distance_chart(growth: pl.DataFrame, first: int | None) -> dict[str, Any]:
    """Relative distance of each stream over the steps; exact zeros stand apart below the axis.

    Parameters
    ----------
    growth : polars.DataFrame
        Columns ``step``, ``stream``, ``relative``.
    first : int or None
        Step of the first difference.

    Returns
    -------
    dict
        A Vega-Lite specification, or an empty one where nothing was compared.
    """
    if growth.is_empty():
        return {}
    values = [
        {
            "step": step,
            "stream": stream,
            "relative": _finite(relative) if relative else None,
            "kind": _kind(relative),
        }
        for step, stream, relative in growth.select("step", "stream", "relative").iter_rows()
    ]
    drawn = [value for value in values if value["kind"] == "finite"]
    streams = [stream for stream in STREAMS if any(value["stream"] == stream for value in drawn)]
    base = alt.Chart(alt.Data(values=values)).encode(x=_steps(growth["step"]))
    layers = _zeros(base)
    if drawn:
        layers.insert(0, _lines(base, streams, [value["relative"] for value in drawn]))
    if any(value["kind"] == "not finite" for value in values):
        layers += _not_finite(base)
    return _with_cursor(layers, first)


def charts(comparison: Comparison, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Both charts of `comparison`, its runs called `names`."""
    first = comparison.first.step if comparison.first else None
    # Where ranks of one run are compared, the losses are those of the run.
    runs = [comparison.a.name, ""] if comparison.reference is not None else names
    return {
        "loss": loss_chart(comparison.losses, runs, first),
        "distance": distance_chart(comparison.growth, first),
    }


def _lines(base: alt.Chart, streams: list[str], distances: list[float]) -> alt.Chart:
    low, high = math.floor(math.log10(min(distances))), math.ceil(math.log10(max(distances)))
    emphasis = "datum.stream == stream"
    scale = alt.Scale(
        type="log",
        domain=[10.0**low, 10.0 ** max(high, low + 1)],
        range=[HEIGHT - STRIP, 4],
    )
    hues = alt.Scale(domain=streams, range=[HUES[stream] for stream in streams])
    return base.mark_line(
        clip=True,
        strokeWidth=1.3,
        point=alt.OverlayMarkDef(size=14 if len(distances) < 600 else 4, filled=True),
    ).encode(
        y=alt.Y(
            "relative:Q",
            scale=scale,
            axis=_axis("relative distance", format="~e", values=_decades(low, high)),
        ),
        color=alt.Color("stream:N", scale=hues, legend=_legend()),
        opacity=alt.condition(emphasis, alt.value(1.0), alt.value(0.45)),
        strokeWidth=alt.condition(emphasis, alt.value(2.2), alt.value(1.1)),
        tooltip=["stream:N", "step:Q", alt.Tooltip("relative:Q", format=".3~e")],
    )


def _zeros(base: alt.Chart) -> list[alt.Chart]:
    selected = base.transform_filter("datum.stream == stream")
    ticks = (
        selected.transform_filter("datum.kind == 'zero'")
        .mark_tick(thickness=2, height=8, orient="vertical", opacity=0.7, color="#8c8c8c")
        .encode(y=alt.value(HEIGHT - 4), tooltip=["stream:N", "step:Q"])
    )
    label = (
        alt.Chart(alt.Data(values=[{}]))
        .mark_text(align="right", baseline="middle", fontSize=10, text="0")
        .encode(x=alt.value(-8), y=alt.value(HEIGHT - 4))
    )
    return [ticks, label]


def _not_finite(base: alt.Chart) -> list[alt.Chart]:
    selected = base.transform_filter("datum.kind == 'not finite' && datum.stream == stream")
    crosses = selected.mark_point(
        shape="cross", size=26, angle=45, filled=True, color=ALARM, opacity=1
    ).encode(y=alt.value(4), tooltip=["stream:N", "step:Q", "kind:N"])
    # Labelled once, where it begins: over many steps the labels would run into each other.
    label = (
        selected.transform_aggregate(step="min(step)")
        .mark_text(text="NaN or Inf", align="right", baseline="middle", dx=-7, color=ALARM)
        .encode(y=alt.value(4))
    )
    return [crosses, label]


def _with_cursor(layers: Sequence[alt.Chart], first: int | None) -> dict[str, Any]:
    cursor = alt.Chart(alt.Data(values=[{}])).mark_rule(strokeWidth=1.4)
    marks: list[alt.Chart] = [cursor.encode(x=alt.XDatum(alt.ExprRef("step"), type="quantitative"))]
    if first is not None:
        place = alt.Chart(alt.Data(values=[{"step": first}])).encode(x="step:Q")
        marks.insert(0, place.mark_rule(style="first", strokeWidth=1.5, strokeDash=[2, 2]))
        flag = place.mark_point(style="flag", shape="triangle-down", size=70, filled=True)
        marks.append(flag.encode(y=alt.value(3), opacity=alt.value(1)))
    chart = (
        alt.layer(*layers, *marks)
        .add_params(alt.param(name="step", value=0), alt.param(name="stream", value=""))
        .properties(height=HEIGHT, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    )
    spec = chart.to_dict()
    del spec["config"]
    return spec


def _steps(steps: pl.Series) -> alt.X:
    low, high = (int(edge) for edge in (steps.min(), steps.max()))  # type: ignore[arg-type]
    margin = 0.5 if low == high else 0
    return alt.X(
        "step:Q",
        scale=alt.Scale(domain=[low - margin, high + margin], nice=False, padding=6),
        axis=alt.Axis(title="step", format="d", tickMinStep=1, grid=False, titlePadding=0),
    )


def _axis(title: str, **more: Any) -> alt.Axis:
    return alt.Axis(title=title, tickCount=4, titlePadding=6, minExtent=34, **more)


def _legend() -> alt.Legend:
    return alt.Legend(title=None, orient="top", offset=2, symbolSize=60, columnPadding=10)


def _decades(low: int, high: int) -> list[float]:
    stride = max(1, -(-(high - low) // 4))
    return [10.0**power for power in range(low, high + 1, stride)]


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _kind(relative: float | None) -> str:
    if relative is None:
        return "missing"
    if relative == 0:
        return "zero"
    return "finite" if math.isfinite(relative) else "not finite"
