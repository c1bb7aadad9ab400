import google_crc32c
import numcodecs
import numpy as np
import pytest

from reprolab.errors import DamagedData, MissingLibrary
from reprolab.formats.zarr_codecs import decode

DATA = bytes(range(256)) * 40
ENCODERS = {
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc(),
    "lz4": numcodecs.LZ4(),
    "gzip": numcodecs.GZip(),
    "zlib": numcodecs.Zlib(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "numcodecs.zlib": numcodecs.Zlib(),
}


def checked(data):
    return data + google_crc32c.value(data).to_bytes(4, "little")


@pytest.mark.parametrize("name", ENCODERS)
def test_what_numcodecs_encodes_is_decoded(name):
    encoded = bytes(ENCODERS[name].encode(DATA))
    assert decode(encoded, (name,), len(DATA), "x").tobytes() == DATA
    assert decode(checked(encoded), (name, "crc32c"), len(DATA), "x").tobytes() == DATA
    inside = bytes(ENCODERS[name].encode(checked(DATA)))
    assert decode(inside, ("crc32c", name), len(DATA), "x").tobytes() == DATA


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("size", [0, len(DATA) - 1, len(DATA) + 1, 10 * len(DATA)])
def test_another_size_is_refused(name, size):
    with pytest.raises(DamagedData, match="x"):
        decode(bytes(ENCODERS[name].encode(DATA)), (name,), size, "x")


@pytest.mark.parametrize("name", ENCODERS)
def test_damage_is_refused(name):
    encoded = bytes(ENCODERS[name].encode(np.random.default_rng(0).bytes(1000)))
    for cut in (0, 1, 5, 15, len(encoded) // 2):
        with pytest.raises(DamagedData):
            decode(encoded[:cut], (name,), 1000, "x")


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65535, 65536, 70000])
def test_every_width_in_which_zstd_says_its_size(size):
    data = np.random.default_rng(size).bytes(size)
    assert decode(bytes(numcodecs.Zstd().encode(data)), ("zstd",), size, "x").tobytes() == data


def test_checksums_alone():
    assert decode(checked(DATA), ("crc32c",), len(DATA), "x").tobytes() == DATA
    for damaged in (checked(DATA)[:-1], b"", b"abc", DATA):
        with pytest.raises(DamagedData):
            decode(damaged, ("crc32c",), len(DATA), "x")


def test_without_numcodecs_it_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "numcodecs.lz4", None)
    with pytest.raises(MissingLibrary, match="numcodecs"):
        decode(bytes(numcodecs.LZ4().encode(DATA)), ("lz4",), len(DATA), "x")
