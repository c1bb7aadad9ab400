import json
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from reprolab.errors import DamagedData
from reprolab.formats import open_checkpoint


def file(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


LIES = {
    "a header of an exabyte": ({"a": entry()}, bytes(8), 1 << 60),
    "a header longer than the file": ({"a": entry()}, bytes(8), 5000),
    "bytes beyond the file": ({"a": entry(shape=(4,), offsets=(0, 16))}, bytes(8)),
    "bytes far beyond the file": ({"a": entry(shape=(1 << 40,), offsets=(0, 1 << 42))}, bytes(8)),
    "another size than the shape": ({"a": entry(shape=(3,))}, bytes(8)),
    "a shape whose size overflows": ({"a": entry(shape=(1 << 40, 1 << 40))}, bytes(8)),
    "two tensors on the same bytes": ({"a": entry(), "b": entry()}, bytes(8)),
    "overlapping tensors": ({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
    "a gap": ({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)),
    "bytes before the first": ({"a": entry(offsets=(4, 12))}, bytes(12)),
    "bytes nobody names": ({"a": entry()}, bytes(12)),
    "offsets backwards": ({"a": entry(offsets=(8, 0))}, bytes(8)),
    "offsets below zero": ({"a": entry(offsets=(-8, 0))}, bytes(8)),
    "offsets that are no numbers": ({"a": entry(offsets=("0", "8"))}, bytes(8)),
    "a shape of booleans": ({"a": entry(shape=(True, 2))}, bytes(8)),
    "a shape below zero": ({"a": entry(shape=(-1, -2))}, bytes(8)),
    "no dtype": ({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "a list": ([1, 2], b""),
    "no JSON": (b'{"a": ', b""),
    "JSON without end": (b"[" * 100_000, b""),
    "a name twice": (b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2), bytes(8)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path, lie):
    path = file(tmp_path / "x.safetensors", *LIES[lie])
    tracemalloc.start()
    try:
        with pytest.raises(DamagedData) as refusal:
            open_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in str(refusal.value)


# The library takes the last of two names, and takes true for 1.
@pytest.mark.parametrize("lie", sorted(set(LIES) - {"a name twice", "a shape of booleans"}))
def test_the_library_refuses_the_same(tmp_path, lie):
    with (
        pytest.raises((SafetensorError, OverflowError)),
        safe_open(file(tmp_path / "x.safetensors", *LIES[lie]), "pt") as found,
    ):
        found.keys()


def test_the_tensor_that_lies_is_named(tmp_path):
    path = file(
        tmp_path / "x.safetensors", {"good": entry(), "bad": entry(offsets=(4, 12))}, bytes(12)
    )
    with pytest.raises(DamagedData, match="tensor bad"):
        open_checkpoint(path)


def test_order_names_and_metadata_are_the_files(tmp_path):
    names = ["z", "a b", "ä/<b>", "", "x.y"]
    header = {name: entry("U8", (1,), (n, n + 1)) for n, name in enumerate(names)}
    header["__metadata__"] = {"step": "3"}
    found = open_checkpoint(file(tmp_path / "x.safetensors", header, bytes(range(5))))
    assert found.layout.names == tuple(names)
    assert found.metadata == {"step": "3"}
    assert [int(found.read(name)[0]) for name in names] == list(range(5))


def test_elements_need_no_alignment(tmp_path):
    header = {"byte": entry("U8", (1,), (0, 1)), "word": entry("F64", (2,), (1, 17))}
    values = np.array([1.5, -2.5])
    found = open_checkpoint(file(tmp_path / "x.safetensors", header, b"\1" + values.tobytes()))
    assert (found.read("word") == values).all()


def test_dtypes_without_fingerprint_are_listed_apart(tmp_path):
    header = {
        "c": entry("C64", (1,), (0, 8)),
        "e": entry("F8_E8M0", (4,), (8, 12)),
        "w": entry("I8", (1,), (12, 13)),
    }
    found = open_checkpoint(file(tmp_path / "x.safetensors", header, bytes(13)))
    assert found.layout.names == ("w",)
    assert set(found.unsupported) == {"c", "e"}


def test_an_empty_checkpoint(tmp_path):
    save_file({}, tmp_path / "x.safetensors")
    assert open_checkpoint(tmp_path / "x.safetensors").layout.names == ()


def test_content_decides_and_not_the_name(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "x.bin")
    assert open_checkpoint(tmp_path / "x.bin").format == "safetensors"
    torch.save({"w": torch.ones(2)}, tmp_path / "y.safetensors")
    assert open_checkpoint(tmp_path / "y.safetensors").format == "torch"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_file_reads_or_is_refused(make, tmp_path_factory, data):
    header = json.dumps({"a": entry(), "b": entry("BF16", (2, 2), (8, 16))}).encode()
    changed = bytearray(struct.pack("<Q", len(header)) + header + bytes(16))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("changed") / "file.safetensors"
    path.write_bytes(changed[: data.draw(st.integers(0, len(changed)))])
    with make.reads_or_refuses("file.safetensors"), open_checkpoint(path) as found:
        for name in found.layout.names:
            found.read(name)
