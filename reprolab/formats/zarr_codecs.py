"""Decoding of Zarr chunks, with the size of what comes out known before it is decoded."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping

import google_crc32c
import numpy as np

from reprolab.errors import DamagedData, MissingLibrary

_CRC = 4
_LZMA_MEMORY = 1 << 28


def decompressor(name: str) -> Callable[[bytes, int], bytes | np.ndarray] | None:
    """What undoes a compression: compressed bytes and the exact size of what comes out."""
    return _DECOMPRESSORS.get(name.removeprefix("numcodecs."))


def _blosc(data: bytes, size: int) -> np.ndarray:
    if len(data) < 16:
        raise ValueError("too short for blosc")
    _expect(int.from_bytes(data[4:8], "little"), size)
    if int.from_bytes(data[12:16], "little") != len(data):
        raise ValueError("blosc's header gives another length")
    return _into("blosc", data, size)


def _zstd(data: bytes, size: int) -> np.ndarray:
    if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 6:
        raise ValueError("no zstd frame")
    flag, single, dictionary = data[4] >> 6, data[4] >> 5 & 1, (0, 1, 2, 4)[data[4] & 3]
    width = (single, 2, 4, 8)[flag]
    if width:
        start = 5 + (not single) + dictionary
        claimed = int.from_bytes(data[start : start + width], "little")
        _expect(claimed + (256 if width == 2 else 0), size)
    # Without a claim the decoder fills the buffer it is given, and complains of more or less.
    return _into("zstd", data, size)


def _lz4(data: bytes, size: int) -> np.ndarray:
    _expect(int.from_bytes(data[:4], "little"), size)
    return _into("lz4", data, size)


def _into(module: str, data: bytes, size: int) -> np.ndarray:
    try:
        from importlib import import_module

        codec = import_module(f"numcodecs.{module}")
    except ImportError as reason:
        raise MissingLibrary(
            f"{module} compression needs numcodecs; install it with: pip install numcodecs"
        ) from reason
    found = np.empty(size, np.uint8)
    codec.decompress(data, found)
    return found


def _inflate(data: bytes, size: int) -> bytes:
    stream = zlib.decompressobj(wbits=47)
    found = stream.decompress(data, size + 1)
    _expect(len(found), size)
    return found


def _bz2(data: bytes, size: int) -> bytes:
    found = bz2.BZ2Decompressor().decompress(data, size + 1)
    _expect(len(found), size)
    return found


def _lzma(data: bytes, size: int) -> bytes:
    found = lzma.LZMADecompressor(memlimit=_LZMA_MEMORY).decompress(data, size + 1)
    _expect(len(found), size)
    return found


def _expect(found: int, size: int) -> None:
    if found != size:
        raise ValueError(f"it decodes to {found} bytes or more, and its chunk has {size}")


_DECOMPRESSORS: Mapping[str, Callable[[bytes, int], bytes | np.ndarray]] = {
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": _lz4,
    "gzip": _inflate,
    "zlib": _inflate,
    "bz2": _bz2,
    "lzma": _lzma,
}


def decode(data: bytes, codecs: tuple[str, ...], size: int, label: str) -> np.ndarray:
    """Undo codecs that turn bytes into bytes.

    Parameters
    ----------
    data : bytes
        A chunk as stored.
    codecs : tuple of str
        Names in the order in which they were applied: ``"crc32c"`` and at most one compression.
    size : int
        Bytes that must come out.
    label : str
        What to call the chunk in messages.

    Returns
    -------
    ndarray, uint8 [size]

    Raises
    ------
    DamagedData
        Where a checksum is wrong, or other than `size` bytes would come out; it says so before
        memory for them is taken.
    """
    found: bytes | np.ndarray = data
    for index in reversed(range(len(codecs))):
        if codecs[index] == "crc32c":
            found = _checked(bytes(found), label)
            continue
        expected = size + _CRC * codecs[:index].count("crc32c")
        undo = _DECOMPRESSORS[codecs[index].removeprefix("numcodecs.")]
        try:
            found = undo(bytes(found), expected)
        except (ValueError, RuntimeError, OSError, EOFError, zlib.error, lzma.LZMAError) as reason:
            raise DamagedData(
                f"a chunk cannot be decoded with {codecs[index]}: {reason}", path=label
            ) from reason
    if len(found) != size:
        raise DamagedData(f"a chunk has {len(found)} bytes; it must have {size}", path=label)
    return np.frombuffer(found, np.uint8)


def _checked(data: bytes, label: str) -> bytes:
    body, expected = data[:-_CRC], int.from_bytes(data[-_CRC:], "little")
    if len(data) < _CRC or google_crc32c.value(body) != expected:
        raise DamagedData(
            "a chunk's checksum is wrong; its bytes changed since they were written", path=label
        )
    return body
