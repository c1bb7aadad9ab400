"""Zarr v3 metadata, written by hand, and elements as NumPy knows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from reprolab.vocabulary import ITEMSIZE

_EXTENSIONS = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def numpy_dtype(name: str) -> np.dtype:
    """Little-endian NumPy dtype of a Zarr data type's name."""
    if name in _EXTENSIONS:
        return np.dtype(_EXTENSIONS[name])
    return np.dtype(name).newbyteorder("<")


def array_metadata(
    dtype: str,
    shape: Sequence[int],
    chunk: Sequence[int],
    attributes: Mapping[str, Any],
    dims: Sequence[str | None] | None = None,
) -> bytes:
    """Content of an array's ``zarr.json``."""
    codec: dict[str, Any] = {"name": "bytes"}
    if ITEMSIZE[dtype] > 1:
        codec["configuration"] = {"endian": "little"}
    metadata: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        # Flat names keep a checkpoint of many chunks from becoming as many folders.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "codecs": [codec, {"name": "crc32c"}],
        "fill_value": _fill_value(dtype),
        "attributes": dict(attributes),
    }
    if dims is not None:
        metadata["dimension_names"] = list(dims)
    return _text(metadata)


def group_metadata(attributes: Mapping[str, Any]) -> bytes:
    """Content of a group's ``zarr.json``."""
    return _text({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def _fill_value(dtype: str) -> bool | int | float:
    if dtype == "bool":
        return False
    return 0.0 if "float" in dtype else 0


def _text(metadata: Mapping[str, Any]) -> bytes:
    return json.dumps(metadata, indent=1).encode() + b"\n"
