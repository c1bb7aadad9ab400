"""Shards of one tensor add up to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from reprolab.kernels.regions import WORD, overlap, unite
from reprolab.kernels.rows import COUNT, Fingerprint, combine
from reprolab.kernels.twin_fingerprint import mix


def merge(parts: Sequence[Fingerprint]) -> Fingerprint:
    """Add fingerprints of disjoint shards of one tensor.

    Parameters
    ----------
    parts : sequence of Fingerprint
        Each shard once, in any order; replicas must be left out.

    Returns
    -------
    Fingerprint
        With ``border=None`` when the parts cover the tensor; otherwise itself a part.

    Raises
    ------
    ValueError
        Where parts overlap or do not belong to one tensor.
    """
    if not parts:
        raise ValueError("merge needs at least one part; got none")
    whole = [part for part in parts if part.border is None]
    if whole:
        if sum(part.moments[:, COUNT].any() for part in parts) > 1:
            raise ValueError("a part already covers the whole tensor; count each replica once")
        return whole[0]
    borders = [part.border for part in parts if part.border is not None]
    first = borders[0]
    kinds = {(border.shape, border.dtype, border.block_bytes) for border in borders}
    if len(kinds) > 1:
        raise ValueError(f"parts must have one shape, dtype and block size; got {sorted(kinds)}")
    regions = tuple(region for border in borders for region in border.regions)
    for one, other in combinations(regions, 2):
        if overlap(one, other):
            raise ValueError(f"parts overlap: {one} and {other}; count each replica once")
    pieces = unite(
        np.concatenate([border.index for border in borders]),
        np.concatenate([border.mask for border in borders]),
        np.concatenate([border.word for border in borders]),
    )
    index, mask, word = pieces
    united = replace(first, index=index, mask=mask, word=word, regions=regions)
    digest = np.stack([part.digest for part in parts]).sum(axis=0, dtype=np.uint64)
    moments = combine(np.stack([part.moments for part in parts]))
    with np.errstate(over="ignore", invalid="ignore"):
        sketch = np.stack([part.sketch for part in parts]).sum(axis=0)
    return settle(Fingerprint(digest, moments, sketch, united))


def settle(part: Fingerprint) -> Fingerprint:
    """Mix the border words that are complete; drop the border when the tensor is."""
    border = part.border
    if border is None:
        return part
    full = border.mask == 0xFF
    row = (border.index[full] // np.uint64(border.block_bytes // WORD)).astype(np.intp)
    digest = part.digest.copy()
    np.add.at(digest, row, mix(border.word[full], border.index[full]))
    seen = sum(prod(region.shape) for region in border.regions)
    rest = None
    if seen < prod(border.shape):
        rest = replace(
            border,
            index=border.index[~full],
            mask=border.mask[~full],
            word=border.word[~full],
        )
    return Fingerprint(digest, part.moments, part.sketch, rest)
