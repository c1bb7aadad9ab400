"""A second reader, written from ``docs/format.md`` alone: it imports nothing of the package."""

import json
import struct
from math import prod

import google_crc32c
import numpy as np
import pytest

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "uint8": 1}


def crc(data):
    return google_crc32c.value(bytes(data))


def record(text):
    text = text.removesuffix(b"\n")
    body, end = text[:-18], text[-18:]
    assert end == b',"crc":"%08x"}' % crc(body)
    return json.loads(body + b"}")


def journal(path):
    data = path.read_bytes()
    magic, version, check = struct.unpack("<6sHI", data[:12])
    assert (magic, version, check) == (b"RLJRNL", 1, crc(data[:8]))
    place, layouts, found = 12, [], {}
    while place + 48 <= len(data):
        head = data[place : place + 48]
        mark, kind, zero, length, step, number, rows, digest, payload_check, check = struct.unpack(
            "<4sHHQqIIQII", head
        )
        assert (mark, zero, check) == (b"rec\n", 0, crc(head[:44]))
        payload = data[place + 48 : place + 48 + length]
        if len(payload) < length:
            break
        assert payload_check == crc(payload)
        if kind == 1:
            layouts.append(json.loads(payload))
        else:
            assert kind == 2
            digests = np.frombuffer(payload, "<u8", rows)
            numbers = np.frombuffer(payload, "<f8")[rows:]
            moments = numbers[: 7 * rows].reshape(rows, 7)
            sketch = numbers[7 * rows :].reshape(rows, 16)
            assert digest == stream_digest(layouts[number], digests.tolist())
            found[layouts[number]["stream"], step] = layouts[number], digests, moments, sketch
        place += 48 + length
    return found


def stream_digest(layout, digests):
    total = 0
    for number, (_, dtype, shape) in enumerate(layout["tensors"]):
        rows = -(-prod(shape) * BYTES[dtype] // layout["block_bytes"])
        mine, digests = digests[:rows], digests[rows:]
        total += sum(mine) * ((number * 0x9E3779B97F4A7C15) % 2**64 | 1)
    assert digests == []
    return total % 2**64


def array(folder):
    metadata = json.loads((folder / "zarr.json").read_bytes())
    assert metadata["chunk_key_encoding"]["configuration"] == {"separator": "."}
    assert [codec["name"] for codec in metadata["codecs"]] == ["bytes", "crc32c"]
    shape = metadata["shape"]
    chunk = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    dtype = np.dtype({"bfloat16": "u2"}.get(metadata["data_type"], metadata["data_type"]))
    whole = np.zeros([-(-e // c) * c for e, c in zip(shape, chunk, strict=True)], dtype)
    for place in np.ndindex(*[-(-e // c) for e, c in zip(shape, chunk, strict=True)]):
        data = (folder / ".".join(["c", *map(str, place)])).read_bytes()
        assert int.from_bytes(data[-4:], "little") == crc(data[:-4])
        here = tuple(slice(p * c, (p + 1) * c) for p, c in zip(place, chunk, strict=True))
        whole[here] = np.frombuffer(data[:-4], dtype).reshape(chunk)
    return whole[tuple(slice(extent) for extent in shape)]


@pytest.fixture
def run(tmp_path, make):
    """A run with facts, a journal not yet folded, and a checkpoint."""
    writer = make.begin(tmp_path, config={"lr": float("inf"), "text": "~nan", "nan": 1})
    layout = make.layout(
        make.spec("a", (700,)),
        make.spec("e", (0, 3)),
        make.spec("Ü", (5,), "bfloat16"),
        block_bytes=1024,
    )
    for step in range(3):
        writer.fact("metric", step, name="loss", value=float("nan"))
        for stream in ("params", "grads"):
            writer.fingerprint(step, stream, layout, make.fingerprint(layout.rows, step))
    specs = [make.spec("a", (3000, 500)), make.spec("Ü/..", (5,), "bfloat16"), make.spec("s", ())]
    params = [(spec, make.values(spec)) for spec in specs]
    rng = [(make.spec("torch", (9,), "uint8"), np.arange(9, dtype=np.uint8))]
    writer.checkpoint(2, {"params": params, "rng": rng})
    return writer, tmp_path / "run", params


def test_records(run):
    _, path, _ = run
    identity = record((path / "run.json").read_bytes())
    assert identity["config"] == {"lr": "inf", "text": "~~nan", "nan": 1}
    attempt = record((path / "attempts/000/attempt.json").read_bytes())
    assert attempt["world_size"] == 1
    lines = (path / "attempts/000/ledger/rank-00000.jsonl").read_bytes().splitlines()
    facts = [{"kind": "metric", "step": n, "name": "loss", "value": "nan"} for n in range(3)]
    assert [record(line) for line in lines] == facts


def test_journal_and_folded_arrays(run, make):
    writer, path, _ = run
    found = journal(path / "attempts/000/journal/rank-00000.bin")
    assert sorted(found) == [(stream, step) for stream in ("grads", "params") for step in range(3)]
    for (_, step), (layout, *parts) in found.items():
        assert [name for name, _, _ in layout["tensors"]] == ["a", "e", "Ü"]
        expected = make.fingerprint(4, step)
        for part, whole in zip(
            parts, (expected.digest, expected.moments, expected.sketch), strict=True
        ):
            assert np.array_equal(part, whole)

    writer.close()
    for stream in ("params", "grads"):
        group = path / "fingerprints/rank-00000.zarr" / stream
        about = json.loads((group / "zarr.json").read_bytes())["attributes"]["reprolab"]
        check = about.pop("crc")
        text = json.dumps(about, sort_keys=True, separators=(",", ":"))
        assert int(check, 16) == crc(text.encode())
        assert about["attempts"] == [0]
        rows = range(about["rows"])
        assert [array(group / "step")[row] for row in rows] == [0, 1, 2]
        for row in rows:
            layout, digests, moments, sketch = found[stream, row]
            assert about["layouts"][array(group / "layout")[row]]["tensors"] == layout["tensors"]
            assert np.array_equal(array(group / "digest")[row], digests)
            assert np.array_equal(array(group / "moments")[row], moments)
            assert np.array_equal(array(group / "sketch")[row], sketch)
            assert array(group / "tensor_digest")[row, 1:].tolist() == [0, digests[3]]
            total = stream_digest(layout, digests.tolist())
            assert array(group / "stream_digest")[row] == total


def test_checkpoint(run):
    _, path, params = run
    commit = record((path / "commits/000000000002.json").read_bytes())
    assert (commit["kind"], commit["base_step"]) == ("full", None)
    arrays = {(held["stream"], held["tensor"], held["rank"]): held for held in commit["arrays"]}
    assert set(arrays) == {("params", spec.name, None) for spec, _ in params} | {
        ("rng", "torch", 0)
    }
    for spec, values in params:
        held = arrays["params", spec.name, None]
        folder = path / "checkpoints/000000000002" / held["path"]
        assert int(held["metadata"], 16) == crc((folder / "zarr.json").read_bytes())
        assert array(folder).tobytes() == values.tobytes()
    assert arrays["rng", "torch", 0]["path"] == "replicas/rank-00000/rng/torch"
