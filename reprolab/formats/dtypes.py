"""Dtype names of other tools as ours."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (teaches NumPy the names bfloat16 and float8_*)
import numpy as np

from reprolab.vocabulary import ITEMSIZE

SAFETENSORS = {
    "BOOL": "bool",
    "I8": "int8",
    "U8": "uint8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
"""By the names in safetensors headers."""

TORCH_STORAGES = {
    "BoolStorage": "bool",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
}
"""By the names of torch's typed storages."""


def numpy_dtype(name: str) -> np.dtype:
    """Little-endian NumPy dtype of a key of ``vocabulary.ITEMSIZE``."""
    return np.dtype(name)


def from_numpy(dtype: np.dtype) -> str | None:
    """Our name of a NumPy dtype of any byte order; None where there is none."""
    return dtype.name if dtype.name in ITEMSIZE else None
