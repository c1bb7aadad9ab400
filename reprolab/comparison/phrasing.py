"""Numbers, lists and ranges as a person would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def pair(a: float, b: float) -> tuple[str, str]:
    """Write two floats with the fewest digits (at least 4) that tell them apart.

    Examples
    --------
    >>> pair(0.1, 0.2), pair(2.3456789, 2.3456788), pair(1.0, float("nan"))
    (('0.1', '0.2'), ('2.3456789', '2.3456788'), ('1', 'NaN'))
    """
    texts = "", ""
    for digits in range(4, 18):
        texts = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if a == b or not np.isfinite([a, b]).all() or float(texts[0]) != float(texts[1]):
            break
    return texts[0].replace("nan", "NaN"), texts[1].replace("nan", "NaN")


def rough(value: float) -> str:
    """Write a measured size with two digits.

    Examples
    --------
    >>> rough(0.000123456), rough(12.3), rough(1234.5)
    ('1.2e-04', '12', '1200')
    """
    plain = 1e-3 <= abs(value) < 1e4 or not value
    return f"{float(f'{value:.2g}'):g}" if plain else f"{value:.1e}"


def count(amount: int, noun: str) -> str:
    """Write an amount with its noun.

    Examples
    --------
    >>> count(1, "rank"), count(1200, "tensor")
    ('1 rank', '1,200 tensors')
    """
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def spans(numbers: Iterable[int]) -> str:
    """Write whole numbers as ranges.

    Examples
    --------
    >>> spans([0, 1, 2, 5]), spans([3]), spans(range(0, 50, 10))
    ('0-2, 5', '3', '0, 10, ..., 40')
    """
    ordered = sorted(set(numbers))
    if len(ordered) > 3:
        strides = set(np.diff(ordered).tolist())
        if len(strides) == 1 and strides != {1}:
            return f"{ordered[0]}, {ordered[1]}, ..., {ordered[-1]}"
    pieces: list[list[int]] = []
    for value in ordered:
        if pieces and value == pieces[-1][-1] + 1:
            pieces[-1].append(value)
        else:
            pieces.append([value])
    texts = [f"{piece[0]}-{piece[-1]}" if len(piece) > 1 else str(piece[0]) for piece in pieces]
    if len(texts) > 8:
        texts = [*texts[:7], f"and {len(texts) - 7} more up to {ordered[-1]}"]
    return ", ".join(texts)


def on_all(amount: int) -> str:
    """Say that something holds on all of some ranks.

    Examples
    --------
    >>> on_all(2), on_all(4)
    ('on both ranks', 'on all 4 ranks')
    """
    return "on both ranks" if amount == 2 else f"on all {amount} ranks"


def ranks(numbers: Sequence[int]) -> str:
    """Name ranks.

    Examples
    --------
    >>> ranks([2]), ranks([0, 1, 2, 3])
    ('rank 2', 'ranks 0-3')
    """
    return f"rank{'' if len(numbers) == 1 else 's'} {spans(numbers)}"


def listed(items: Iterable[str], most: int = 5) -> str:
    """Join with commas and a final "and"; past `most`, say how many more.

    Examples
    --------
    >>> listed("ab"), listed("abcdefg", most=2)
    ('a and b', 'a, b and 5 more')
    """
    words = list(items)
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def size(nbytes: int) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> size(0), size(999), size(1_500_000)
    ('0 bytes', '999 bytes', '1.5 MB')
    """
    if nbytes < 1000:
        return f"{nbytes} bytes"
    amount, units = float(nbytes), iter(("kB", "MB", "GB", "TB", "PB", "EB"))
    unit = ""
    while amount >= 999.5:
        amount, unit = amount / 1000, next(units)
    return f"{amount:.3g} {unit}"


def sentence(text: str) -> str:
    """Begin with a capital, end with a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ':')) else '.'}"
