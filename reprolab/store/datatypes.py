"""bfloat16 and float8 for zarr-python, under the names that other implementations use.

The package announces them as entry points of the group ``zarr.data_type``. zarr-python up to 3.1
gathers these and does not load them by itself: a program that does not use reprolab calls
:func:`register` once before it opens such an array.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import ml_dtypes
import numpy as np
import zarr
from zarr.core.dtype.common import HasEndianness, HasItemSize
from zarr.dtype import DataTypeValidationError, ZDType, data_type_registry
from zarr.storage import LocalStore

_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_NAMED = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@dataclass(frozen=True, kw_only=True)
class _ExtensionFloat(ZDType[Any, Any], HasItemSize):
    """A float that NumPy knows through ml_dtypes."""

    scalar: ClassVar[type]

    @property
    def item_size(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.scalar).itemsize

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        """From a NumPy dtype."""
        if dtype == np.dtype(cls.scalar):
            return cls()
        raise DataTypeValidationError(f"expected {np.dtype(cls.scalar)}; got {dtype}")

    def to_native_dtype(self) -> Any:
        """To a NumPy dtype."""
        return np.dtype(self.scalar)

    @classmethod
    def _from_json_v2(cls, data: Any) -> Self:
        raise DataTypeValidationError(f"Zarr v2 has no name for {cls._zarr_v3_name}")

    @classmethod
    def _from_json_v3(cls, data: Any) -> Self:
        if data == cls._zarr_v3_name:
            return cls()
        raise DataTypeValidationError(f"expected {cls._zarr_v3_name!r}; got {data!r}")

    def to_json(self, zarr_format: Any) -> Any:
        """Name in the metadata of an array."""
        if zarr_format == 3:
            return self._zarr_v3_name
        raise ValueError(f"Zarr v{zarr_format} has no name for {self._zarr_v3_name}")

    def _check_scalar(self, data: object) -> bool:
        return isinstance(data, int | float | np.floating | np.integer | self.scalar)

    def cast_scalar(self, data: object) -> Any:
        """A number as an element."""
        if self._check_scalar(data):
            return self.scalar(data)
        raise TypeError(f"expected a number for {self._zarr_v3_name}; got {data!r}")

    def default_scalar(self) -> Any:
        """Zero."""
        return self.scalar(0)

    def from_json_scalar(self, data: Any, *, zarr_format: Any) -> Any:
        """A fill value from metadata: a number, a named value, or bits in hexadecimal."""
        if isinstance(data, str) and data in _NAMED:
            return self.scalar(_NAMED[data])
        if isinstance(data, str) and _HEXADECIMAL.fullmatch(data):
            # The digits are the bits of the element, the most significant first.
            bits = int(data, 16).to_bytes(self.item_size, "big")
            unsigned = np.frombuffer(bits, f">u{self.item_size}").astype(f"=u{self.item_size}")
            return unsigned.view(self.scalar)[0]
        return self.cast_scalar(data)

    def to_json_scalar(self, data: object, *, zarr_format: Any) -> Any:
        """A fill value for metadata."""
        value = self.cast_scalar(data)
        number = float(value)
        if np.isfinite(number):
            return number
        if np.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        bits = int(np.asarray(value).view(f"u{self.item_size}"))
        return f"0x{bits:0{2 * self.item_size}x}"


@dataclass(frozen=True, kw_only=True)
class BFloat16(_ExtensionFloat, HasEndianness):
    """``bfloat16``. It has an endianness, so that arrays say theirs as others require."""

    dtype_cls: ClassVar[Any] = type(np.dtype(ml_dtypes.bfloat16))
    scalar = ml_dtypes.bfloat16
    _zarr_v3_name: ClassVar[Any] = "bfloat16"

    def to_native_dtype(self) -> Any:
        """To a NumPy dtype; only the machine's own byte order exists there."""
        return np.dtype(self.scalar).newbyteorder("<" if self.endianness == "little" else ">")


@dataclass(frozen=True, kw_only=True)
class Float8E4M3FN(_ExtensionFloat):
    """``float8_e4m3fn``."""

    dtype_cls: ClassVar[Any] = type(np.dtype(ml_dtypes.float8_e4m3fn))
    scalar = ml_dtypes.float8_e4m3fn
    _zarr_v3_name: ClassVar[Any] = "float8_e4m3fn"


@dataclass(frozen=True, kw_only=True)
class Float8E5M2(_ExtensionFloat):
    """``float8_e5m2``."""

    dtype_cls: ClassVar[Any] = type(np.dtype(ml_dtypes.float8_e5m2))
    scalar = ml_dtypes.float8_e5m2
    _zarr_v3_name: ClassVar[Any] = "float8_e5m2"


def register() -> None:
    """Make the types known in this process, whether or not the entry points are installed."""
    for data_type in (BFloat16, Float8E4M3FN, Float8E5M2):
        data_type_registry.register(data_type._zarr_v3_name, cast("Any", data_type))


def open_array(folder: Path) -> zarr.Array:
    """A stored array, for reading only."""
    register()
    return zarr.open_array(LocalStore(folder, read_only=True), mode="r", zarr_format=3)
