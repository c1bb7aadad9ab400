"""Distances as frames: rows of tensors, growth of streams, the heat map of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from reprolab.comparison.cells import Cells, cells
from reprolab.comparison.distances import KINDS, LAYOUT, NONFINITE
from reprolab.comparison.tracks import Track
from reprolab.vocabulary import STREAMS

ROWS = pl.Schema(
    {
        "step": pl.Int64(),
        "stream": pl.Enum(STREAMS),
        "rank": pl.Int32(),
        "tensor": pl.String(),
        "position": pl.Int32(),
        "kind": pl.Enum(KINDS),
        "distance": pl.Float64(),
        "error": pl.Float64(),
        "relative": pl.Float64(),
        "blocks": pl.Int32(),
        "differing": pl.Int32(),
    }
)

GROWTH = pl.Schema(
    {
        "step": pl.Int64(),
        "stream": pl.Enum(STREAMS),
        "ranks": pl.Int32(),
        "tensors": pl.Int64(),
        "distance": pl.Float64(),
        "error": pl.Float64(),
        "relative": pl.Float64(),
    }
)


class Heat(NamedTuple):
    """Relative distances, tensor by step."""

    steps: np.ndarray
    """int64 [steps], ascending."""
    tensors: tuple[str, ...]
    """Names, in the order of the stream."""
    values: np.ndarray
    """log10 of the relative distance, float64 [tensors, steps]: -inf is exactly equal, +inf is a
    different number of NaN or infinite elements, NaN is not compared."""


class Measured(NamedTuple):
    """How far apart all tracks are."""

    rows: pl.DataFrame
    """One row for every tensor that differs, in the order step, stream, rank, position."""
    growth: pl.DataFrame
    """One row for every stream and step compared. The distance is the root of the mean over the
    ranks of the squared distance of all tensors, so that it does not depend on their number."""


def measure(tracks: Sequence[Track]) -> Measured:
    """Measure every tensor of every track, at every step at which the stream differs."""
    parts = list(cells(tracks))
    odd = [_odd_rows(track) for track in tracks if any(part.odd for part in track.segments)]
    rows = pl.concat([pl.DataFrame(schema=ROWS), *map(_rows, parts), *odd])
    return Measured(
        rows.sort("step", "stream", "rank", "position", maintain_order=True),
        _growth(tracks, parts, odd),
    )


def _rows(part: Cells) -> pl.DataFrame:
    names = [tensor.name for tensor in part.segment.match.tensors]
    found = part.apart
    cell, tensor = np.nonzero(found.differs.reshape(len(part.steps), len(names)))
    # Every rank that recorded the same digests gets the rows of its cell.
    repeats = np.array([len(ranks) for ranks in part.ranks])
    start = np.concatenate([[0], np.cumsum(repeats)])
    times = repeats[cell]
    line = np.repeat(np.arange(len(cell)), times)
    nth = np.arange(len(line)) - np.repeat(np.cumsum(times) - times, times)
    ranks = np.array([rank for group in part.ranks for rank in group], np.int32)
    cell, tensor = cell[line], tensor[line]
    flat = cell * len(names) + tensor
    return pl.DataFrame(
        {
            "step": np.array(part.steps, np.int64)[cell],
            "stream": pl.Series([part.stream], dtype=ROWS["stream"]).new_from_index(0, len(cell)),
            "rank": ranks[start[cell] + nth],
            "tensor": pl.Series(names, dtype=pl.String).gather(tensor),
            "position": np.arange(len(names), dtype=np.int32)[tensor],
            "kind": pl.Series(KINDS, dtype=ROWS["kind"]).gather(found.kind[flat]),
            "distance": found.distance[flat],
            "error": found.error[flat],
            "relative": found.relative[flat],
            "blocks": part.blocks[tensor],
            "differing": part.differing[cell, tensor],
        },
        schema=ROWS,
    ).with_columns(pl.when(pl.col("differing") >= 0).then(pl.col("differing")))


def _odd_rows(track: Track) -> pl.DataFrame:
    records = [
        {
            "step": int(track.steps[position]),
            "stream": track.stream,
            "rank": track.rank,
            "tensor": name,
            "position": len(segment.match.tensors) + number,
            "kind": KINDS[LAYOUT],
        }
        for segment in track.segments
        for position in segment.positions.tolist()
        for number, name in enumerate(segment.odd)
    ]
    return pl.DataFrame(records, schema=ROWS)


def _growth(
    tracks: Sequence[Track], parts: Sequence[Cells], odd: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """Sum the cells of all ranks; steps at which no rank differs are exactly zero."""
    key = {"step": pl.Int64(), "stream": GROWTH["stream"]}
    compared = pl.concat(
        [pl.DataFrame(schema=key)]
        + [
            pl.DataFrame({"step": track.steps}).with_columns(
                stream=pl.lit(track.stream, GROWTH["stream"])
            )
            for track in tracks
        ]
    )
    compared = compared.group_by("step", "stream").agg(compared=pl.len())
    sums = [
        {
            "step": step,
            "stream": part.stream,
            "ranks": len(ranks),
            "tensors": tensors,
            "squared": squared * len(ranks),
            "variance": variance * len(ranks) ** 2,
            "norm": norm * len(ranks),
            "nonfinite": bool(nonfinite),
        }
        for part in parts
        for step, ranks, tensors, squared, variance, norm, nonfinite in zip(
            part.steps, part.ranks, *_totals(part), strict=True
        )
    ]
    schema = {
        **key,
        "ranks": pl.Int64(),
        "tensors": pl.Int64(),
        **dict.fromkeys(("squared", "variance", "norm"), pl.Float64()),
        "nonfinite": pl.Boolean(),
    }
    whole = (
        pl.DataFrame(sums, schema=schema)
        .group_by("step", "stream")
        .agg(
            pl.col("ranks", "squared", "variance", "norm").sum(),
            pl.col("tensors").max(),
            pl.col("nonfinite").any(),
        )
    )
    distance = (pl.col("squared") / pl.col("compared")).sqrt()
    found = compared.join(whole, on=["step", "stream"], how="left").with_columns(
        distance=distance.fill_null(0.0),
        error=pl.when(pl.col("squared") > 0)
        .then(pl.col("variance").sqrt() / pl.col("compared") / (2 * distance))
        .otherwise(0.0),
        relative=pl.when(pl.col("nonfinite").fill_null(False))
        .then(float("inf"))
        .when(pl.col("squared") > 0)
        .then(distance / (pl.col("norm") / pl.col("ranks")).sqrt())
        .otherwise(0.0),
        ranks=pl.col("ranks").fill_null(0),
        tensors=pl.col("tensors").fill_null(0),
    )
    return found.select(*GROWTH).cast(GROWTH).sort("stream", "step")


def _totals(part: Cells) -> tuple[list, list, list, list, list]:
    """For each cell: tensors that differ, squared distance, its variance, squared norm, NaN."""
    shape = len(part.steps), len(part.segment.match.tensors)
    found = part.apart
    differs = found.differs.reshape(shape)
    return (
        differs.sum(1).tolist(),
        np.where(differs, found.squared.reshape(shape), 0.0).sum(1).tolist(),
        np.where(differs, np.square(found.squared_error.reshape(shape)), 0.0).sum(1).tolist(),
        found.norm.reshape(shape).sum(1).tolist(),
        ((found.kind == NONFINITE).reshape(shape) & differs).any(1).tolist(),
    )


def heat(tracks: Sequence[Track], rows: pl.DataFrame, stream: str, rank: int | None) -> Heat:
    """Relative distances of one stream, for one rank or the largest over all ranks."""
    chosen = [
        track for track in tracks if track.stream == stream and (rank is None or track.rank == rank)
    ]
    steps = np.unique(np.concatenate([np.zeros(0, np.int64), *(t.steps for t in chosen)]))
    names: dict[str, int] = {}
    for track in chosen:
        for segment in track.segments:
            for tensor in segment.match.tensors:
                names.setdefault(tensor.name, len(names))
    values = np.full((len(names), len(steps)), np.nan)
    for track in chosen:
        for segment in track.segments:
            columns = np.searchsorted(steps, track.steps[segment.positions])
            places = [names[tensor.name] for tensor in segment.match.tensors]
            values[np.ix_(places, columns)] = -np.inf
    found = rows.filter((pl.col("stream") == stream) & pl.col("tensor").is_in(list(names)))
    if rank is not None:
        found = found.filter(pl.col("rank") == rank)
    found = found.filter(pl.col("relative").is_not_null())
    line = np.array([names[name] for name in found["tensor"].to_list()], np.intp)
    column = np.searchsorted(steps, found["step"].to_numpy())
    with np.errstate(divide="ignore"):
        np.maximum.at(values, (line, column), np.log10(found["relative"].to_numpy()))
    return Heat(steps, tuple(names), values)
