"""Fingerprints of tensors, of shards and of whole streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from reprolab.kernels import backend, torch_fingerprint, twin_fingerprint
from reprolab.kernels.merge import settle
from reprolab.kernels.regions import Runs, cut_words, runs, whole
from reprolab.kernels.rows import Border, Fingerprint
from reprolab.kernels.tensors import CODES, bytes_at, dtype_name, flat_bytes, locate
from reprolab.vocabulary import BLOCK_BYTES, ITEMSIZE, Layout, Region, TensorSpec


def fingerprint(
    tensor: Any,
    *,
    shape: tuple[int, ...] | None = None,
    region: Region | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Fingerprint:
    """Fingerprint a tensor, or the shard of it that one rank holds.

    Parameters
    ----------
    tensor : ndarray or torch.Tensor
        Any dtype of ``vocabulary.ITEMSIZE``, any strides, read-only or not; it is not touched.
    shape : tuple of int, optional
        Shape of the whole tensor; needed with `region`.
    region : Region, optional
        The box of the whole tensor that `tensor` is.
    block_bytes : int
        Size of a block, a multiple of 16.

    Returns
    -------
    Fingerprint
        One row for each block of the *whole* tensor. A shard's carries a ``border``;
        :func:`reprolab.kernels.merge` adds shards up.

    Raises
    ------
    UnsupportedDtype
        Where the kernels know no such dtype.
    ValueError
        Where shape, region and tensor do not fit each other.

    Examples
    --------
    >>> import numpy as np
    >>> whole = np.arange(6, dtype=np.float32)
    >>> parts = [
    ...     fingerprint(whole[:3], shape=(6,), region=Region((0,), (3,))),
    ...     fingerprint(whole[3:], shape=(6,), region=Region((3,), (3,))),
    ... ]
    >>> from reprolab.kernels import merge
    >>> bool(merge(parts).digest == fingerprint(whole).digest)
    True
    """
    dtype = dtype_name(tensor)
    local = tuple(tensor.shape)
    if region is None:
        if shape is not None and tuple(shape) != local:
            raise ValueError(f"without a region, shape must be the tensor's {local}; got {shape}")
        spec = TensorSpec("", dtype, local)
        stretch = whole(spec.size)
    else:
        if shape is None:
            raise ValueError("a region needs the shape of the whole tensor; got none")
        if region.shape != local:
            raise ValueError(f"the region must have the tensor's shape {local}; got {region}")
        spec = TensorSpec("", dtype, tuple(shape))
        stretch = runs(spec.shape, region)
    found = Fingerprint.zeros(Layout((spec,), block_bytes).rows)
    dense, address = locate(tensor)
    _accumulate(dense, address, spec, stretch, block_bytes, found)
    if region is None:
        return found
    cut = cut_words(partial(bytes_at, dense), stretch, ITEMSIZE[dtype])
    border = Border(*cut, spec.shape, dtype, block_bytes, (region,))
    return settle(Fingerprint(found.digest, found.moments, found.sketch, border))


def fingerprint_stream(tensors: Sequence[Any], layout: Layout) -> Fingerprint:
    """Fingerprint all tensors of a stream into one set of arrays.

    Parameters
    ----------
    tensors : sequence of ndarray, torch.Tensor or None
        In the order of the layout; ``None`` is a tensor that is absent, its rows stay zero.
    layout : Layout
        Names, dtypes and shapes that the tensors must have.

    Returns
    -------
    Fingerprint
        ``layout.rows`` rows; those of tensor t are ``layout.rows_of(t)``.

    Raises
    ------
    ValueError
        Where a tensor is not what the layout says; it is named.
    """
    if len(tensors) != len(layout.tensors):
        raise ValueError(f"the layout has {len(layout.tensors)} tensors; got {len(tensors)}")
    found = Fingerprint.zeros(layout.rows)
    addresses = [0] * len(tensors)
    kept = []  # copies that had to be made, until the kernel has read them
    for index, (tensor, spec) in enumerate(zip(tensors, layout.tensors, strict=True)):
        if tensor is None:
            continue
        if tensor.shape != spec.shape or dtype_name(tensor) != spec.dtype:
            raise ValueError(
                f"tensor {spec.name!r}: the layout says {spec.dtype} {spec.shape}; "
                f"got {dtype_name(tensor)} {tuple(tensor.shape)}"
            )
        try:
            dense, address = locate(tensor)
        except TypeError as error:
            raise TypeError(f"tensor {spec.name!r}: {error}") from None
        if backend.passes is not None and address is not None:
            addresses[index] = address
            kept.append(dense)
        else:
            rows = found.rows(layout.rows_of(index))
            _accumulate(dense, address, spec, whole(spec.size), layout.block_bytes, rows)
    if backend.passes is not None:
        backend.passes.add_tensors(
            np.array(addresses, np.uint64),
            *_columns(layout),
            layout.block_bytes,
            found.digest,
            found.moments,
            found.sketch,
        )
    return found


_known: dict[int, tuple[Layout, tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}


def _columns(layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dtype codes, sizes and first rows of the layout's tensors."""
    # By identity: to hash a layout of hundreds of names takes longer than to fingerprint biases.
    layout_and_columns = _known.get(id(layout))
    if layout_and_columns is None:
        if len(_known) >= 64:
            _known.clear()
        columns = (
            np.array([CODES[spec.dtype] for spec in layout.tensors], np.uint8),
            np.array([spec.size for spec in layout.tensors], np.int64),
            np.array(layout.starts[:-1], np.int64),
        )
        layout_and_columns = _known[id(layout)] = (layout, columns)
    return layout_and_columns[1]


def _accumulate(
    dense: Any,
    address: int | None,
    spec: TensorSpec,
    stretch: Runs,
    block_bytes: int,
    into: Fingerprint,
) -> None:
    if address is None:
        torch_fingerprint.accumulate(dense, spec.dtype, stretch, block_bytes, into)
    elif backend.passes is None:
        twin_fingerprint.accumulate(flat_bytes(dense), spec.dtype, stretch, block_bytes, into)
    else:
        backend.passes.add_runs(
            address,
            CODES[spec.dtype],
            stretch.starts,
            stretch.length,
            stretch.size,
            block_bytes,
            into.digest,
            into.moments,
            into.sketch,
        )
