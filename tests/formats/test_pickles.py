import io
import os
import pickle
import pickletools
import struct
import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, RefusedPickle
from reprolab.formats.pickles import Maker, Record, load, stand_in

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)
ENCODE = {
    ("_codecs", "encode"): Maker(lambda text, kind: text.encode(kind)),
    ("__builtin__", "bytes"): Maker(lambda: b""),
}


@settings(max_examples=60, deadline=None)
@given(plain, st.integers(2, 5))
def test_plain_data_is_what_python_would_load(value, protocol):
    assert load(pickle.dumps(value, protocol), ENCODE, "test") == value


def test_shared_objects_stay_shared_and_sets_are_sets():
    inner = [1]
    found = load(
        pickle.dumps({"a": inner, "b": inner, "s": {1, 2}, "f": frozenset({3})}, 4), {}, "t"
    )
    assert found["a"] is found["b"]
    assert (found["s"], found["f"]) == ({1, 2}, frozenset({3}))


def test_a_name_in_the_table_becomes_what_the_table_says():
    data = pickle.dumps(OrderedDict(a=1), 2)
    table = {("collections", "OrderedDict"): Maker(dict)}
    assert load(data, table, "test") == {"a": 1}
    found = load(
        data, {("collections", "OrderedDict"): stand_in("collections", "OrderedDict")}, "t"
    )
    assert isinstance(found, Record)
    assert found.items == {"a": 1}


class Payload:
    """Whatever a file's author wants the reader's machine to do."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def payloads(marker):
    command = f"touch {marker}"
    module, name = os.system.__module__, "system"
    text = f"c{module}\n{name}\n(S'{command}'\ntR."
    inst = f"(S'{command}'\ni{module}\n{name}\n."
    obj = f"(c{module}\n{name}\nS'{command}'\no."
    short = b"\x8c" + bytes([len(module)]) + module.encode() + b"\x8c\x06system\x93"
    word = b"X" + struct.pack("<I", len(command)) + command.encode()
    code = f"open({str(marker)!r}, 'w').close()"
    return {
        "a reduce": pickle.dumps(Payload(os.system, command), 2),
        "a stack global": b"\x80\x04" + short + word + b"\x85R.",
        "text": text.encode(),
        "an INST": inst.encode(),
        "an OBJ": obj.encode(),
        "exec": pickle.dumps(Payload(exec, code), 4),
        "deep inside": pickle.dumps({"a": [1, {"b": (Payload(eval, code.replace("\n", "")),)}]}, 5),
        "a dotted name": b"\x80\x04\x8c\x08builtins\x8c\x0dexec.__call__\x93X"
        + struct.pack("<I", len(code))
        + code.encode()
        + b"\x85R.",
    }


@pytest.mark.parametrize("which", list(payloads("x")))
def test_a_real_payload_is_refused_and_does_not_run(which, tmp_path):
    marker = tmp_path / "it-ran"
    data = payloads(marker)[which]
    with pytest.raises(RefusedPickle, match="nothing was run"):
        load(data, ENCODE, "test")
    assert not marker.exists()
    pickle.Unpickler(io.BytesIO(data)).load()
    assert marker.exists(), "the payload is no payload, so the test above proves nothing"


def test_the_refusal_names_what_was_asked_for():
    with pytest.raises(RefusedPickle, match=r"asks for posix\.system.*safetensors"):
        load(payloads("x")["a reduce"], {}, "some file")


@pytest.mark.parametrize(
    "name", [b"c__main__\nx.y\n.", b"\x80\x04\x8c\x01a\x8c\x03b.c\x93.", b"\x80\x04K\x01K\x02\x93."]
)
def test_names_must_match_exactly(name):
    table = {("__main__", "x"): 1, ("a", "b"): 2, ("a", "b.c"): 3, ("__main__", "x.y"): 4}
    with pytest.raises(RefusedPickle):
        load(name, table, "test")


def test_only_makers_are_called():
    table = {("os", "system"): os.system}
    with pytest.raises(DamagedData, match="may be named"):
        load(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", table, "test")


def test_state_reaches_stand_ins_alone():
    table = {("a", "b"): stand_in("a", "b")}
    found = load(b"\x80\x02ca\nb\n)R}X\x01\x00\x00\x00kK\x05sb.", table, "test")
    assert (found.kind, found.get("k")) == ("a.b", 5)
    with pytest.raises(DamagedData, match="no state"):
        load(b"\x80\x02ca\nb\n}X\x01\x00\x00\x00kK\x05sb.", table, "test")


@pytest.mark.parametrize(
    "data",
    {
        "a memo of four billion": b"\x80\x02Nr\xff\xff\xff\xff.",
        "bytes of an exabyte": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
        "text of an exabyte": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
        "a byte array of an exabyte": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b"x.",
        "an integer of a gigabyte": b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"x.",
        "a string of negative length": b"\x80\x02T" + struct.pack("<i", -5) + b"xxxxxxxxx.",
        "a frame of an exabyte": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    }.values(),
)
def test_sizes_are_checked_before_memory_is_taken(data):
    tracemalloc.start()
    try:
        with pytest.raises(DamagedData) if b"N" not in data else _nullcontext():
            load(data, {}, "test")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _nullcontext():
    from contextlib import nullcontext

    return nullcontext()


def test_keys_that_would_hash_without_end_are_refused():
    deep = b"N" + b"\x85" * 200_000
    with pytest.raises(DamagedData, match="as a key"):
        load(b"\x80\x02}" + deep + b"Ns.", {}, "test")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_pickle_loads_or_is_refused(make, data):
    whole = pickle.dumps({"a": [1, 2.5, ("x", b"y")], "b": {1, 2}, "c": OrderedDict(z=None)}, 4)
    table = {("collections", "OrderedDict"): Maker(dict), **ENCODE}
    changed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with make.reads_or_refuses("test"):
        load(bytes(changed), table, "test")


def test_no_instruction_of_python_is_unaccounted_for():
    from reprolab.formats.pickles import _STEPS

    refused = {
        "INT", "LONG", "STRING", "UNICODE", "FLOAT", "GET", "PUT", "PERSID", "INST", "OBJ",
        "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER",
    }  # fmt: skip
    known = {code.name for code in pickletools.opcodes if ord(code.code) in _STEPS} | {"STOP"}
    assert known | refused == {code.name for code in pickletools.opcodes}
    assert not known & refused
