import json
import math
from enum import StrEnum
from pathlib import PurePosixPath

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, FormatTooNew
from reprolab.store import records

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(one, other):
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@settings(deadline=None)
@given(st.dictionaries(st.text(), values, max_size=5))
def test_what_was_written_comes_back(record):
    assert same(record, records.unseal(records.seal(record)))
    assert same(record, records.unseal(records.seal(record, indent=1)))


@settings(deadline=None)
@given(st.text(alphabet="~-naif", max_size=6))
def test_texts_that_look_like_numbers_stay_texts(text):
    assert records.unseal(records.seal({"text": text})) == {"text": text}


def test_the_text_is_strict_json_of_one_line():
    text = records.seal({"text": "a\nb\u2028", "value": math.nan, "list": [math.inf, -math.inf]})
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["value"] == "nan"
    assert found["list"] == ["inf", "-inf"]
    assert b"\n" not in text
    assert text.isascii()


def test_the_checksum_is_of_what_stands_before_it():
    text = records.seal({"kind": "note"})
    assert text == b'{"kind":"note","crc":"%08x"}' % google_crc32c.value(b'{"kind":"note"')


def test_every_flipped_bit_is_found():
    text = records.seal({"kind": "metric", "step": 12, "value": 0.125})
    for place in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match="checksum"):
            records.unseal(bytes(flipped))


def test_numbers_of_numpy_paths_and_enumerations_become_plain():
    colour = StrEnum("Colour", {"RED": "red"})
    record = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": np.bool_(True),
        "d": np.array(2),
        "e": PurePosixPath("x/y"),
        "f": colour.RED,
        "g": (1, 2),
        5: "key",
    }
    assert records.unseal(records.seal(record)) == {
        "a": 0.5,
        "b": 3,
        "c": True,
        "d": 2,
        "e": "x/y",
        "f": "red",
        "g": [1, 2],
        "5": "key",
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", np.zeros(2), 1j, {(1, 2): 3}])
def test_other_values_are_refused_by_their_place(value):
    with pytest.raises(TypeError, match=r"record\.outer\.inner\[1\]"):
        records.seal({"outer": {"inner": [0, value]}})


def test_a_file_says_its_format_and_is_read_back(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(records.write_text({"name": "a"}))
    assert json.loads(path.read_text())["format"] == records.FORMAT
    assert records.read_file(path) == {"format": records.FORMAT, "name": "a"}


def test_a_newer_format_is_told_from_damage(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(records.seal({"format": records.FORMAT + 1, "new": "field"}))
    with pytest.raises(FormatTooNew, match="install a newer reprolab"):
        records.read_file(path)
    path.write_bytes(records.write_text({}).replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(DamagedData, match=r"run\.json"):
        records.read_file(path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b"null",
        records.seal({"no": "format"}),
        records.seal({"format": "1"}),
        records.seal({"format": 0}),
    ],
)
def test_a_file_without_its_record_is_damaged(text, tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(text)
    with pytest.raises(DamagedData):
        records.read_file(path)


def test_a_record_that_nests_without_end_is_damaged(tmp_path):
    body = b'{"format":1,"a":' + b"[" * 100_000 + b"]" * 100_000
    path = tmp_path / "run.json"
    path.write_bytes(body + b',"crc":"%08x"}' % google_crc32c.value(body))
    with pytest.raises(DamagedData, match="deeply"):
        records.read_file(path)
