"""Nested settings as flat keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def flatten(nested: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Walk nested mappings and sequences as ``(key, leaf)`` with keys joined by dots.

    Sequences count from 0. An empty mapping or sequence is a leaf, so that ``[]`` and a missing
    key stay different.

    Examples
    --------
    >>> dict(flatten({"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "tags": []}))
    {'optim.lr': 0.1, 'optim.betas.0': 0.9, 'optim.betas.1': 0.99, 'tags': []}
    """
    for key, value in nested.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        elif isinstance(value, list | tuple) and value:
            yield from flatten({str(i): item for i, item in enumerate(value)}, f"{path}.")
        else:
            yield path, value
