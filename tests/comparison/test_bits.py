"""Elements: values, bits, and how far apart in units in the last place."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprolab.comparison import Element

FLOATS = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
}


def of_bits(name, bits):
    width = np.dtype(FLOATS[name]).itemsize
    return np.frombuffer(bits.to_bytes(width, "little"), FLOATS[name])[0]


@given(st.sampled_from(sorted(FLOATS)), st.data())
def test_the_bits_are_those_of_the_element(name, data):
    width = np.dtype(FLOATS[name]).itemsize * 8
    a = data.draw(st.integers(0, 2**width - 1))
    bit = data.draw(st.integers(0, width - 1))
    found = Element.of((1,), name, of_bits(name, a), of_bits(name, a ^ 1 << bit))
    assert (found.a_bits, found.b_bits) == (a, a ^ 1 << bit)
    assert found.flipped == (bit,)
    assert json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_neighbours_are_one_ulp_apart_also_across_zero(name):
    one = of_bits(name, 1)
    minus = of_bits(name, 1 | 1 << (np.dtype(FLOATS[name]).itemsize * 8 - 1))
    assert Element.of((), name, one, of_bits(name, 2)).ulp == 1
    assert Element.of((), name, one, minus).ulp == 2


@pytest.mark.parametrize(
    ("name", "bit", "part"),
    [
        ("float32", 31, "sign"),
        ("float32", 30, "exponent"),
        ("float32", 23, "exponent"),
        ("float32", 22, "mantissa"),
        ("bfloat16", 7, "exponent"),
        ("bfloat16", 6, "mantissa"),
        ("float8_e4m3fn", 3, "exponent"),
        ("float8_e5m2", 1, "mantissa"),
    ],
)
def test_a_bit_is_named_after_its_part(name, bit, part):
    assert Element.of((), name, of_bits(name, 0), of_bits(name, 1 << bit)).part(bit) == part


def test_integers_have_values_and_a_sign():
    found = Element.of((), "int64", np.int64(-1), np.int64(5))
    assert found.ulp == 6
    assert found.part(63) == "sign"
    assert Element.of((), "uint8", np.uint8(3), np.uint8(2)).part(7) == "value"
    assert Element.of((), "bool", np.bool_(True), np.bool_(False)).ulp is None


def test_a_nan_has_no_ulp_distance_and_is_text_in_json():
    found = Element.of((), "float32", np.float32("nan"), np.float32(1))
    assert found.ulp is None
    assert found.to_dict()["a"] == "nan"


def test_values_are_written_with_the_digits_their_dtype_needs():
    found = Element.of((), "float32", np.float32(0.1), np.float32(0.3))
    assert found.texts == ("0.1", "0.3")
