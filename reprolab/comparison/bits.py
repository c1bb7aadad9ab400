"""One element as each side holds it: value, bits, and how the bits differ."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import ml_dtypes  # noqa: F401 - registers the small float types with NumPy
import numpy as np

_MANTISSA = {
    "float8_e4m3fn": 3,
    "float8_e5m2": 2,
    "bfloat16": 7,
    "float16": 10,
    "float32": 23,
    "float64": 52,
}
"""Bits of the mantissa of each float dtype; those above are the exponent, then the sign."""

Value = bool | int | float


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs."""

    index: tuple[int, ...]
    """Global index in the tensor; ``()`` in a scalar."""
    dtype: str
    a: Value
    """Value in a."""
    b: Value
    """Value in b."""
    bits: int
    """Bits of an element of this dtype."""
    a_bits: int
    """Bits in a, as an unsigned integer."""
    b_bits: int
    """Bits in b, as an unsigned integer."""

    @classmethod
    def of(cls, index: tuple[int, ...], dtype: str, a: np.generic, b: np.generic) -> Element:
        """Describe two NumPy scalars of the same dtype."""
        width = a.dtype.itemsize * 8
        value_a, value_b = (_value(side) for side in (a, b))
        return cls(index, dtype, value_a, value_b, width, _unsigned(a), _unsigned(b))

    @property
    def flipped(self) -> tuple[int, ...]:
        """Numbers of the bits that differ, the lowest bit being 0."""
        changed = self.a_bits ^ self.b_bits
        return tuple(bit for bit in range(self.bits) if changed >> bit & 1)

    @property
    def ulp(self) -> int | None:
        """Steps from a to b through the values of the dtype; None where either is NaN."""
        if self.dtype == "bool":
            return None
        if self.dtype not in _MANTISSA:
            return abs(int(self.b) - int(self.a))
        if self.a != self.a or self.b != self.b:
            return None
        return abs(self._ordered(self.b_bits) - self._ordered(self.a_bits))

    def part(self, bit: int) -> str:
        """What a bit stands for in this dtype.

        Examples
        --------
        >>> Element.of((), "float32", np.float32(1), np.float32(-1)).part(31)
        'sign'
        """
        if self.dtype in _MANTISSA:
            mantissa = _MANTISSA[self.dtype]
            return "sign" if bit == self.bits - 1 else "exponent" if bit >= mantissa else "mantissa"
        return "sign" if self.dtype.startswith("int") and bit == self.bits - 1 else "value"

    def _ordered(self, bits: int) -> int:
        """Map sign and magnitude onto a line on which neighbours are one apart."""
        magnitude = bits & ~(1 << (self.bits - 1))
        return -magnitude if bits >> (self.bits - 1) else magnitude

    @property
    def texts(self) -> tuple[str, str]:
        """Both values with as many digits as the dtype needs to tell its values apart."""
        kind = np.dtype(self.dtype).type
        return str(kind(self.a)), str(kind(self.b))

    def to_dict(self) -> dict[str, object]:
        """Plain values; bits as hexadecimal text, non-finite values as text."""
        digits = self.bits // 4
        return {
            "index": list(self.index),
            "dtype": self.dtype,
            "a": plain(self.a),
            "b": plain(self.b),
            "a_bits": f"0x{self.a_bits:0{digits}x}",
            "b_bits": f"0x{self.b_bits:0{digits}x}",
            "flipped": list(self.flipped),
            "ulp": self.ulp,
        }


def plain(value: Value | None) -> Value | str | None:
    """A number as JSON can hold it: NaN and infinities become text."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _value(side: np.generic) -> Value:
    if side.dtype.kind in "biu":
        return side.item()
    return float(side)


def _unsigned(side: np.generic) -> int:
    return int.from_bytes(np.asarray(side).tobytes(), "little" if _little(side) else "big")


def _little(side: np.generic) -> bool:
    order = np.asarray(side).dtype.byteorder
    return order == "<" or (order in "=|" and sys.byteorder == "little")
