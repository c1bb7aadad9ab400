"""Layouts as JSON, and the roll-up of a stream's block rows to one row a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reprolab.kernels import Fingerprint
from reprolab.vocabulary import LANES, MOMENTS, Layout, TensorSpec

_MIN, _MAX = MOMENTS.index("min"), MOMENTS.index("max")
_TURN = np.uint64(0x9E3779B97F4A7C15)


def layout_record(layout: Layout) -> dict[str, Any]:
    """A layout in JSON's types."""
    return {
        "block_bytes": layout.block_bytes,
        "tensors": [[spec.name, spec.dtype, list(spec.shape)] for spec in layout.tensors],
    }


def layout_from(record: Mapping[str, Any]) -> Layout:
    """The layout in a record.

    Raises
    ------
    ValueError
        If the record describes none.
    """
    try:
        return Layout(
            tuple(
                TensorSpec(name, dtype, tuple(int(extent) for extent in shape))
                for name, dtype, shape in record["tensors"]
            ),
            record["block_bytes"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no layout: {error!r}") from error


def roll_up(layout: Layout, fingerprint: Fingerprint) -> Fingerprint:
    """One row for each tensor from its block rows; an empty tensor's is zero."""
    starts = np.asarray(layout.starts)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    tensors = len(layout.tensors)
    digest = np.zeros(tensors, np.uint64)
    moments = np.zeros((tensors, len(MOMENTS)))
    sketch = np.zeros((tensors, LANES))
    if not len(filled):
        return Fingerprint(digest, moments, sketch)
    # Empty tensors have no rows, so the others' starts cut all rows.
    cuts = starts[filled]
    # Sums of huge values may overflow, and then say so themselves.
    with np.errstate(over="ignore", invalid="ignore"):
        digest[filled] = np.add.reduceat(fingerprint.digest, cuts)
        moments[filled] = np.add.reduceat(fingerprint.moments, cuts, axis=0)
        sketch[filled] = np.add.reduceat(fingerprint.sketch, cuts, axis=0)
    for column, reduce in ((_MIN, np.minimum), (_MAX, np.maximum)):
        moments[filled, column] = reduce.reduceat(fingerprint.moments[:, column], cuts)
    return Fingerprint(digest, moments, sketch)


def stream_digest(layout: Layout, digest: np.ndarray) -> np.uint64:
    """Digest of a whole stream from those of its block rows.

    Each tensor counts an odd number of times that depends on its place, so that two tensors of
    the same shape that change places, such as two micro-batches, do not cancel.
    """
    starts = np.asarray(layout.starts)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    if not len(filled):
        return np.uint64(0)
    tensors = np.add.reduceat(digest, starts[filled], dtype=np.uint64)
    times = filled.astype(np.uint64) * _TURN | np.uint64(1)
    return np.add.reduce(tensors * times, dtype=np.uint64)
