"""Safetensors: eight bytes of length, a JSON header, and the tensors' bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from reprolab.errors import DamagedData
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.dtypes import SAFETENSORS
from reprolab.formats.elements import Stored, Strided
from reprolab.formats.sources import Part, Source
from reprolab.formats.tensors import StoredTensor
from reprolab.vocabulary import ITEMSIZE

LONGEST_HEADER = 100_000_000
"""What the format allows, in bytes."""


def is_safetensors(source: Source) -> bool:
    """Whether a source begins like safetensors: a length, and a brace where JSON begins."""
    return source.size >= 10 and source.read(8, 1).tobytes() == b"{" and _length(source) >= 2


def _length(source: Source) -> int:
    return int.from_bytes(source.read(0, 8).tobytes(), "little")


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors header says."""

    metadata: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], int, int]]
    """Name to (dtype as the file calls it, shape, begin, end); bytes count from `start`."""
    start: int
    """Where the tensors' bytes begin."""


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DamagedData(f"the header names {name!r} twice")
        found[name] = value
    return found


def read_header(source: Source) -> Header:
    """Read and check a header.

    Raises
    ------
    DamagedData
        Where it is absurdly long or cut off, makes no sense, names a tensor twice, or gives
        tensors other bytes than their shape needs, bytes of another tensor, or none there are.
    """
    if source.size < 8:
        raise DamagedData(f"{source.size} bytes are too few for safetensors", path=source.label)
    length = _length(source)
    if length > LONGEST_HEADER or 8 + length > source.size:
        raise DamagedData(
            f"the header claims to be {length} bytes long; the file has {source.size} and the "
            f"format allows {LONGEST_HEADER}. It is truncated or not safetensors",
            path=source.label,
        )
    try:
        raw = json.loads(source.read(8, length).tobytes(), object_pairs_hook=_unique)
        tensors = {
            name: _entry(name, entry) for name, entry in raw.items() if name != "__metadata__"
        }
        metadata = dict(raw.get("__metadata__") or {})
    except DamagedData as error:
        raise error.at(path=source.label) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise DamagedData(
            f"the header makes no sense ({type(reason).__name__}: {reason})", path=source.label
        ) from reason
    _check_bytes(tensors, source.size - 8 - length, source.label)
    return Header(metadata, tensors, 8 + length)


def _entry(name: str, entry: dict[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    begin, end = entry["data_offsets"]
    numbers = [*entry["shape"], begin, end]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise DamagedData(f"shape or offsets are not numbers: {numbers}", tensor=name)
    dtype = str(entry["dtype"])
    shape = tuple(entry["shape"])
    if dtype in SAFETENSORS:
        nbytes = prod(shape) * ITEMSIZE[SAFETENSORS[dtype]]
        if end - begin != nbytes:
            raise DamagedData(
                f"{dtype} of shape {shape} needs {nbytes} bytes; the header gives it bytes "
                f"{begin} to {end}",
                tensor=name,
            )
    return dtype, shape, begin, end


def _check_bytes(
    tensors: dict[str, tuple[str, tuple[int, ...], int, int]], size: int, label: str
) -> None:
    place = 0
    for name, (_, _, begin, end) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if begin != place or end < begin:
            raise DamagedData(
                f"the header gives it bytes {begin} to {end}, and the tensor before ends at "
                f"{place}; tensors must follow one another without overlap or gap",
                path=label,
                tensor=name,
            )
        place = end
    if place != size:
        raise DamagedData(
            f"the header describes {place} bytes of tensors and the file has {size}; it is "
            "truncated or the header lies: copy it again from where it was written",
            path=label,
        )


def tensors_of(source: Source, header: Header) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors a header describes, and why the others cannot be read."""
    tensors: dict[str, StoredTensor] = {}
    unsupported: dict[str, str] = {}
    for name, (dtype, shape, begin, end) in header.tensors.items():
        if dtype in SAFETENSORS:
            part = Part(source, header.start + begin, end - begin)
            tensors[name] = Strided(Stored(part, SAFETENSORS[dtype]), shape)
        else:
            unsupported[name] = f"its dtype is {dtype}, which has no fingerprint"
    return tensors, unsupported


def open_source(source: Source, path: str) -> CheckpointFile:
    """Open one safetensors file."""
    header = read_header(source)
    tensors, unsupported = tensors_of(source, header)
    return CheckpointFile(
        path,
        "safetensors",
        tensors,
        unsupported=unsupported,
        metadata=header.metadata,
        close=source.close,
    )
