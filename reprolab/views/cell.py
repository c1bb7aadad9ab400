"""One cell of the heat map in words, numbers and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from reprolab.errors import NothingToCompare
from reprolab.views.heat import KINDS, encode

if TYPE_CHECKING:
    from reprolab.comparison import Comparison

SHOWN = 200
"""Blocks listed with their numbers; all of them are in the map."""

_SAYS = {
    "apart": "Differs.",
    "below resolution": "Differs by too little for the sketch to measure; the distance is a bound.",
    "non-finite": "The numbers of NaN or infinite elements differ.",
    "absent in a": "Only b has this tensor at this step.",
    "absent in b": "Only a has this tensor at this step.",
    "layout": "Not the same dtype or shape in both.",
}


def cell(
    comparison: Comparison,
    step: int,
    stream: str,
    tensor: str,
    rank: int | None,
    extent: tuple[int, int],
) -> dict[str, Any]:
    """Describe one tensor at one step.

    Parameters
    ----------
    comparison : Comparison
        Whose.
    step, stream, tensor : int, str, str
        Which cell.
    rank : int or None
        On which rank; None takes the rank on which the tensor is farthest apart.
    extent : tuple of int
        Logarithms of the relative distance that the colours' ends stand for.

    Returns
    -------
    dict
        Texts and numbers as they are to be shown; ``blocks`` are codes as in a heat map.
    """
    here = comparison.rows.filter(
        (pl.col("step") == step) & (pl.col("stream") == stream) & (pl.col("tensor") == tensor)
    )
    on, said = _rank(here, rank, comparison.ranks)
    row = next(here.filter(pl.col("rank") == on).iter_rows(named=True), None)
    shown: dict[str, Any] = {
        "step": step,
        "stream": stream,
        "tensor": tensor,
        "asked": rank,
        "rank": said,
        "says": _SAYS[row["kind"]] if row else "Exactly equal.",
        "facts": _distance(row) if row else [],
        "blocks": [],
        "map": "",
        "caption": "",
        "columns": [],
        "rows": [],
    }
    first = comparison.first
    if first is not None and (first.step, first.stream, first.tensor) == (step, stream, tensor):
        shown["says"] += " This is the first difference."
        shown["facts"] += _element(first.element) if first.element else []
    if row is not None and row["kind"] == "layout":
        return shown
    try:
        blocks = comparison.blocks(step, stream, tensor, on)
    except NothingToCompare as error:
        if row is None:
            shown["says"] = "Not recorded."
        else:
            shown["says"] += f" No blocks are shown: {error.message}."
        return shown
    if not any(name == "in a" for name, _ in shown["facts"]):
        shown["facts"] += _values(blocks)
    return shown | _map(blocks, extent)


def number(value: float | None) -> str:
    """A measured number with three digits.

    Examples
    --------
    >>> number(1.23456e-7), number(0.0), number(float("nan")), number(None)
    ('1.23e-7', '0', 'NaN', '–')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    text = f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _rank(here: pl.DataFrame, rank: int | None, ranks: list[int]) -> tuple[int, str]:
    if rank is not None:
        return rank, f"rank {rank}"
    if here.is_empty():
        return ranks[0], "all ranks"
    farthest = here.sort(pl.col("relative").fill_nan(math.inf), "rank", descending=[True, False])
    on = int(farthest["rank"][0])
    differ = here["rank"].n_unique()
    if differ == 1:
        return on, f"rank {on}" + (" (the only one that differs)" if len(ranks) > 1 else "")
    alike = farthest["relative"].n_unique() == 1
    return on, f"rank {on} ({f'all {differ} alike' if alike else f'farthest apart of {differ}'})"


def _distance(row: dict[str, Any]) -> list[list[str]]:
    if row["kind"] == "layout":
        return []
    bound = row["kind"] == "below resolution"
    sign = "≤ " if bound else ""
    error = f" ± {number(row['error'])}" if row["error"] and not bound else ""
    return [
        ["relative", f"{sign}{number(row['relative'])}"],
        ["distance", f"{sign}{number(row['distance'])}{error}"],
    ]


def _element(element: Any) -> list[list[str]]:
    digits = element.bits // 4
    where = "there " if element.index else ""
    facts = [
        [f"{where}in a", f"{element.a!r} (0x{element.a_bits:0{digits}x})"],
        [f"{where}in b", f"{element.b!r} (0x{element.b_bits:0{digits}x})"],
    ]
    if element.index:
        facts.insert(0, ["element", str(list(element.index))])
    if element.ulp is not None:
        ulp = str(element.ulp) if element.ulp < 1_000_000 else number(element.ulp)
        facts.append(["apart by", f"{ulp} ulp"])
    return facts


def _values(blocks: pl.DataFrame) -> list[list[str]]:
    """What the whole tensor looks like on each side; on both in one line where that is equal."""
    sides = [_moments(blocks, side) for side in "ab"]
    if sides[0] == sides[1] and not blocks["differs"].any():
        return [["values", sides[0]]]
    return [["in a", sides[0]], ["in b", sides[1]]]


def _moments(blocks: pl.DataFrame, side: str) -> str:
    total = {name: float(blocks[f"{side}_{name}"].sum()) for name in ("count", "nan", "inf", "sum")}
    low, high = blocks[f"{side}_min"].min(), blocks[f"{side}_max"].max()
    finite = total["count"] - total["nan"] - total["inf"]
    odd = [
        f"{int(total[name])} {word}"
        for name, word in (("nan", "NaN"), ("inf", "Inf"))
        if total[name]
    ]
    if finite == 1 and total["count"] == 1:
        return f"{total['sum']:.9g}"
    if finite > 0:
        span = f"mean {number(total['sum'] / finite)}, {number(low)} to {number(high)}"  # type: ignore[arg-type]
        return ", ".join([span, *odd])
    return ", ".join(odd) or "not there"


def _map(found: pl.DataFrame, extent: tuple[int, int]) -> dict[str, Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = encode(np.log10(found["relative"].to_numpy()), extent)
    kinds = found["kind"].cast(pl.String).to_list()
    different = found.filter("differs")
    return {
        "blocks": [
            int(code) if kind == "apart" else KINDS[kind]
            for code, kind in zip(codes, kinds, strict=True)
        ],
        "map": f"{len(different)} of {len(found)} blocks differ: "
        + _some(str(block) for block in different["block"].to_list()),
        "caption": "blocks that differ"
        + (f" (the first {SHOWN} of {len(different)})" if len(different) > SHOWN else ""),
        "columns": ["block", "from element", "relative", "distance"],
        "rows": [
            [str(block), f"{start:,}", number(relative), number(distance)]
            for block, start, relative, distance in different.head(SHOWN)
            .select("block", "start", "relative", "distance")
            .iter_rows()
        ],
    }


def _some(texts: Iterable[str], most: int = 20) -> str:
    words = list(texts)
    return ", ".join(words[:most]) + (" …" if len(words) > most else "")
