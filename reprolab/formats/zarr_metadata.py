"""Metadata of Zarr arrays, versions 2 and 3, as one plain description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.dtypes import numpy_dtype
from reprolab.formats.zarr_codecs import decompressor
from reprolab.vocabulary import ITEMSIZE


class Unreadable(Exception):
    """Why an array cannot be read, although nothing is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a chunk became bytes."""

    order: tuple[int, ...]
    """The tensor's dims in the order in which the chunk's bytes run through them, slowest first."""
    big_endian: bool
    codecs: tuple[str, ...]
    """Codecs from bytes to bytes, in the order in which they were applied."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a chunk is a shard of smaller chunks."""

    inner: tuple[int, ...]
    """Shape of the smaller chunks."""
    index: Encoding
    """How the index became bytes."""
    index_first: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A Zarr array, whatever its version."""

    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    encoding: Encoding
    sharding: Sharding | None
    fill: np.ndarray
    """0-d."""
    prefix: str
    """What every chunk's key begins with; the only key of a 0-d array."""
    separator: str

    def key(self, index: tuple[int, ...]) -> str:
        """Key of a chunk."""
        words = self.separator.join(map(str, index))
        if self.prefix == "c":
            return f"c{self.separator}{words}" if index else "c"
        return words or "0"


def parse(raw: bytes, label: str) -> dict[str, Any]:
    """A metadata document.

    Raises
    ------
    DamagedData
        Where it is no JSON object.
    """
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as reason:
        raise DamagedData(f"the metadata is not JSON: {reason}", path=label) from reason
    if not isinstance(found, dict):
        raise DamagedData("the metadata is no JSON object", path=label)
    return found


def describe(metadata: Mapping[str, Any], label: str) -> Description:
    """An array's metadata, checked.

    Raises
    ------
    Unreadable
        Where it uses a dtype or codec that is not supported.
    DamagedData
        Where it makes no sense.
    """
    try:
        found = _version_2(metadata) if metadata["zarr_format"] == 2 else _version_3(metadata)
        if len(found.chunk) != len(found.shape) or not all(found.chunk):
            raise ValueError(f"chunks of shape {found.chunk} for an array of shape {found.shape}")
        if found.sharding:
            pairs = zip(found.chunk, found.sharding.inner, strict=True)
            if any(not small or large % small for large, small in pairs):
                raise ValueError(f"shards {found.chunk} of chunks {found.sharding.inner}")
        if prod(found.shape) * ITEMSIZE[found.dtype] >= 1 << 63:
            raise ValueError(f"a shape of {found.shape} is more than any file can hold")
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as reason:
        raise DamagedData(
            f"the metadata makes no sense ({type(reason).__name__}: {reason})", path=label
        ) from reason
    return found


def _extents(value: Any) -> tuple[int, ...]:
    if any(type(extent) is not int or extent < 0 for extent in value):
        raise ValueError(f"extents {value}")
    return tuple(value)


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    return str(value["name"]), dict(value.get("configuration") or {})


def _version_3(metadata: Mapping[str, Any]) -> Description:
    dtype, _ = _named(metadata["data_type"])
    if dtype not in ITEMSIZE:
        raise Unreadable(f"its dtype is {dtype}, which has no fingerprint")
    grid, configuration = _named(metadata["chunk_grid"])
    if grid != "regular":
        raise Unreadable(f"its chunk grid is {grid!r}")
    if metadata.get("storage_transformers"):
        raise Unreadable("it uses storage transformers")
    chunk = _extents(configuration["chunk_shape"])
    keys, key_options = _named(metadata["chunk_key_encoding"])
    if keys not in ("default", "v2"):
        raise Unreadable(f"its chunk keys are {keys!r}")
    shape = _extents(metadata["shape"])
    codecs = [_named(codec) for codec in metadata["codecs"]]
    sharding = None
    if codecs and codecs[0][0] == "sharding_indexed":
        if len(codecs) > 1:
            raise Unreadable("its shards are encoded once more")
        options = codecs[0][1]
        index = [_named(codec) for codec in options["index_codecs"]]
        codecs = [_named(codec) for codec in options["codecs"]]
        sharding = Sharding(
            _extents(options["chunk_shape"]),
            _encoding(index, len(shape) + 1),
            options.get("index_location", "end") == "start",
        )
        if set(sharding.index.codecs) - {"crc32c"}:
            raise Unreadable("its shard index is compressed")
    return Description(
        dtype,
        shape,
        chunk,
        _encoding(codecs, len(shape)),
        sharding,
        _fill(metadata["fill_value"], dtype),
        "c" if keys == "default" else "",
        str(key_options.get("separator", "/" if keys == "default" else ".")),
    )


def _encoding(codecs: list[tuple[str, dict[str, Any]]], ndim: int) -> Encoding:
    order = tuple(range(ndim))
    big_endian = False
    into_bytes: list[str] = []
    seen_bytes = False
    for name, options in codecs:
        if name == "transpose" and not seen_bytes:
            step = _transposition(options["order"], ndim)
            order = tuple(order[dim] for dim in step)
        elif name in ("bytes", "endian") and not seen_bytes:
            seen_bytes = True
            big_endian = options.get("endian", "little") == "big"
        elif seen_bytes and (name == "crc32c" or decompressor(name)):
            into_bytes.append(name)
        else:
            raise Unreadable(f"its codec {name!r} is not supported")
    if not seen_bytes:
        raise Unreadable("it has no codec into bytes that is supported")
    return Encoding(order, big_endian, _single(into_bytes))


def _transposition(order: Any, ndim: int) -> tuple[int, ...]:
    if order in ("C", "F"):
        return tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"transpose {order}")
    return tuple(order)


def _single(codecs: list[str]) -> tuple[str, ...]:
    if len([name for name in codecs if name != "crc32c"]) > 1:
        raise Unreadable("it is compressed twice")
    return tuple(codecs)


def _version_2(metadata: Mapping[str, Any]) -> Description:
    shape = _extents(metadata["shape"])
    code = metadata["dtype"]
    if not isinstance(code, str):
        raise Unreadable("its dtype is structured")
    if code in ITEMSIZE:
        dtype, big_endian = code, False
    else:
        try:
            kind = np.dtype(code)
        except TypeError:
            raise Unreadable(f"its dtype is {code!r}") from None
        if kind.name not in ITEMSIZE:
            raise Unreadable(f"its dtype is {code!r}, which has no fingerprint")
        dtype, big_endian = kind.name, code.startswith(">")
    if metadata.get("filters"):
        raise Unreadable("it uses filters")
    codecs = []
    if metadata.get("compressor"):
        name = str(metadata["compressor"]["id"])
        if decompressor(name) is None:
            raise Unreadable(f"its compressor {name!r} is not supported")
        codecs.append(name)
    order = _transposition(metadata.get("order", "C"), len(shape))
    return Description(
        dtype,
        shape,
        _extents(metadata["chunks"]),
        Encoding(order, big_endian, tuple(codecs)),
        None,
        _fill(metadata.get("fill_value"), dtype),
        "",
        str(metadata.get("dimension_separator", ".")),
    )


def _fill(value: Any, dtype: str) -> np.ndarray:
    kind = numpy_dtype(dtype)
    if value is None:
        return np.zeros((), kind)
    if isinstance(value, str) and value.startswith("0x"):
        raw = int(value, 16).to_bytes(kind.itemsize, "little")
        return np.frombuffer(raw, kind)[0:1].reshape(())
    if isinstance(value, str):
        value = float(value.replace("Infinity", "inf"))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(value).astype(kind).reshape(())
