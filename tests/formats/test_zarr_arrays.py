import json
import tracemalloc

import numcodecs
import numpy as np
import pytest

from reprolab.errors import DamagedData, TooLarge
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.formats.zarr_arrays import ChunkCache
from reprolab.vocabulary import Region

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BOMB = np.zeros(64 << 20, np.uint8)


def rle_frame(size):
    """A zstd frame of zeros that does not say how long it is."""
    block = 128 << 10
    blocks = [(block << 3 | 2).to_bytes(3, "little") + b"\0"] * (size // block - 1)
    last = (block << 3 | 2 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks) + last


BOMBS = {
    "zstd": numcodecs.Zstd().encode(BOMB),
    "zstd of unknown size": rle_frame(len(BOMB)),
    "blosc": numcodecs.Blosc().encode(BOMB),
    "lz4": numcodecs.LZ4().encode(BOMB),
    "gzip": numcodecs.GZip(9).encode(BOMB),
    "zlib": numcodecs.Zlib(9).encode(BOMB),
    "bz2": numcodecs.BZ2(9).encode(BOMB),
    "lzma": numcodecs.LZMA().encode(BOMB),
}


def store(folder, chunk, codecs, shape=(4,), chunks=(4,)):
    folder.mkdir()
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "codecs": codecs,
        "fill_value": 0,
    }
    (folder / "zarr.json").write_text(json.dumps(metadata))
    if chunk is not None:
        (folder / ("c" + ".0" * len(shape))).write_bytes(chunk)
    return folder


def sharding(chunk, codecs, index_codecs):
    options = {"chunk_shape": [chunk], "codecs": codecs, "index_codecs": index_codecs}
    return {"name": "sharding_indexed", "configuration": options}


def refused_without_memory(folder, error=DamagedData):
    tracemalloc.start()
    try:
        with pytest.raises(error) as refusal:
            open_checkpoint(folder).read("tensor")
        assert tracemalloc.get_traced_memory()[1] < len(BOMB) // 4
    finally:
        tracemalloc.stop()
    return str(refusal.value)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(tmp_path, bomb):
    codec = {"name": bomb.split()[0]}
    message = refused_without_memory(store(tmp_path / "a", BOMBS[bomb], [LITTLE, codec]))
    assert "c.0" in message


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_bombs_are_bombs(bomb):
    name = {"zlib": numcodecs.Zlib, "gzip": numcodecs.GZip, "bz2": numcodecs.BZ2,
            "lzma": numcodecs.LZMA, "lz4": numcodecs.LZ4, "blosc": numcodecs.Blosc}  # fmt: skip
    codec = name.get(bomb, numcodecs.Zstd)()
    assert len(codec.decode(BOMBS[bomb])) == len(BOMB) > 50 * len(BOMBS[bomb])


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_within_a_shard_is_refused(tmp_path, bomb):
    inner = sharding(2, [LITTLE, {"name": bomb.split()[0]}], [LITTLE])
    size = len(BOMBS[bomb])
    index = np.array([[0, size], [0, size]], "<u8").tobytes()
    refused_without_memory(store(tmp_path / "a", BOMBS[bomb] + index, [inner]))


@pytest.mark.parametrize("entry", [(0, 1 << 60), (1 << 60, 8), (1 << 63, 1 << 63), (33, 8)])
def test_a_shard_index_that_lies_is_refused(tmp_path, entry):
    inner = sharding(2, [LITTLE], [LITTLE])
    index = np.array([entry, entry], "<u8").tobytes()
    refused_without_memory(store(tmp_path / "a", bytes(8) + index, [inner]))


def test_an_absurd_shard_index_is_refused(tmp_path):
    inner = sharding(1, [LITTLE], [LITTLE, {"name": "crc32c"}])
    folder = store(tmp_path / "a", bytes(64), [inner], (1 << 40,), (1 << 40,))
    found = open_checkpoint(folder)
    with pytest.raises(DamagedData, match="too short for its index"):
        found.read("tensor", Region((0,), (1,)))


def test_an_absurd_chunk_is_refused(tmp_path):
    folder = store(tmp_path / "a", b"x", [LITTLE, {"name": "zstd"}], (1 << 40,), (1 << 40,))
    found = open_checkpoint(folder)
    with pytest.raises(TooLarge, match="a chunk of shape"):
        found.read("tensor", Region((0,), (1,)))


def test_an_absurd_but_honest_shape_is_read_by_regions_alone(tmp_path):
    folder = store(tmp_path / "a", None, [LITTLE], (1 << 50,), (1 << 20,))
    found = open_checkpoint(folder)
    assert (found.read("tensor", Region((1 << 49,), (5,))) == 0).all()
    with pytest.raises(TooLarge, match="this machine has"):
        found.read("tensor")
    with pytest.raises(TooLarge, match="blocks of"):
        fingerprint_checkpoint(folder)


def test_a_checksum_finds_a_flipped_bit(written, tmp_path):
    import shutil

    folder = shutil.copytree(written("zarr3")[0], tmp_path / "copy")
    path = folder / "matrix.weight" / "c" / "1" / "1"
    data = bytearray(path.read_bytes())
    data[3] ^= 4
    path.write_bytes(data)
    found = open_checkpoint(folder)
    with pytest.raises(DamagedData, match=r"checksum.*bytes changed") as refusal:
        found.read("matrix.weight")
    assert "c/1/1" in str(refusal.value.where) or "c/1/1" in str(refusal.value)
    assert found.read("matrix.weight", Region((60, 0), (4, 4))).shape == (4, 4)


def test_an_uncompressed_chunk_of_another_size_is_refused(tmp_path):
    refused_without_memory(store(tmp_path / "a", bytes(15), [LITTLE]))
    refused_without_memory(store(tmp_path / "b", bytes(17), [LITTLE]))


def test_chunks_are_decoded_once_while_the_cache_holds_them(written, monkeypatch):
    from reprolab.formats import zarr_arrays

    calls = []
    original = zarr_arrays.decode
    monkeypatch.setattr(
        zarr_arrays, "decode", lambda *args: calls.append(args[-1]) or original(*args)
    )
    with open_checkpoint(written("zarr3")[0]) as found:
        for block in range(0, 2310, 30):
            found.elements("matrix.weight", block, block + 30)
    assert len(calls) == len(set(calls)) == 18 * 9


def test_the_cache_lets_go_of_what_was_not_used(tmp_path):
    cache = ChunkCache(limit=100)
    for key in range(5):
        cache.put(key, np.zeros(30, np.uint8))
        cache.get(2)
    assert cache.get(0) is None
    assert cache.get(1) is None
    assert cache.get(2) is not None
    cache.put("large", np.zeros(101, np.uint8))
    assert cache.get("large") is None
