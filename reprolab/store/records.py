"""Records: JSON objects that carry their own checksum, and survive NaN.

A record is the text of a JSON object whose last member is ``"crc"``: the crc32c, as eight
hexadecimal digits, of every byte before the 18 bytes ``,"crc":"........"}`` that end it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from reprolab.errors import DamagedData, FormatTooNew

FORMAT = 1
"""Version of everything this package writes."""

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_SEAL_LENGTH = 18
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LOOKS_NOT_FINITE = re.compile(r"~*(?:nan|inf|-inf)")


def seal(record: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """Text of a record, without a line break at its end.

    Examples
    --------
    >>> seal({"kind": "metric", "value": float("nan")})
    b'{"kind":"metric","value":"nan","crc":"b9603fe1"}'
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(
        _plain(record, "record"), indent=indent, separators=separators, allow_nan=False
    ).encode()
    body = text[:-1].rstrip()
    return body + b',"crc":"%08x"}' % google_crc32c.value(body)


def unseal(text: bytes) -> dict[str, Any]:
    """The record in `text`, without its checksum.

    Raises
    ------
    ValueError
        If the checksum is missing or wrong, or the text is no JSON object.
    """
    body, end = text[:-_SEAL_LENGTH], text[-_SEAL_LENGTH:]
    match = _SEAL.fullmatch(end)
    if match is None:
        raise ValueError("the checksum at its end is missing")
    found = google_crc32c.value(body)
    if found != int(match[1], 16):
        raise ValueError(f"its checksum is {found:08x}, and {match[1].decode()} was written")
    try:
        record = json.loads(body + b"}")
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return _restored(record)


def write_text(record: Mapping[str, Any]) -> bytes:
    """A record as the whole content of a file, for people to read too."""
    return seal({"format": FORMAT, **record}, indent=1) + b"\n"


def read_file(path: Path) -> dict[str, Any]:
    """The record a file holds.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DamagedData
        If its checksum is missing or wrong.
    FormatTooNew
        If a newer version of the format is named in it.
    """
    text = path.read_bytes()
    try:
        record = unseal(text.removesuffix(b"\n"))
        version = record["format"]
    except (ValueError, KeyError) as error:
        raise DamagedData(
            f"this record of {len(text)} bytes is damaged: {error}; "
            "restore the file from a copy if there is one",
            path=path,
        ) from error
    check_format(version, path)
    return record


def check_format(version: object, path: Path) -> None:
    """Refuse what a newer version of the package wrote."""
    if not isinstance(version, int) or version < 1:
        raise DamagedData(f"the format must be a positive number; got {version!r}", path=path)
    if version > FORMAT:
        raise FormatTooNew(
            f"this has format {version} and the installed reprolab reads up to {FORMAT}; "
            "install a newer reprolab to read it",
            path=path,
        )


def simple(value: Any) -> Any:
    """`value` as it comes back from a record: in JSON's types, and NaN and Inf as numbers.

    Raises
    ------
    TypeError
        If anything in it is of another type.
    """
    return _restored(_plain(value, "record"))


def checksum(record: Mapping[str, Any]) -> str:
    """Checksum of a record inside other JSON: of its compact text with sorted keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{google_crc32c.value(text.encode()):08x}"


def _plain(value: Any, place: str) -> Any:
    """`value` in JSON's types; what is not finite, or a text that looks so, is made a text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return (
            "~" + str.__str__(value) if _LOOKS_NOT_FINITE.fullmatch(value) else str.__str__(value)
        )
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _plain(value.item(), place)
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value), place)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str | int | float | bool | None) for key in value):
            raise TypeError(f"{place}: keys must be texts or numbers; got {list(value)[:5]!r}")
        return {str(key): _plain(entry, f"{place}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{place}[{index}]") for index, entry in enumerate(value)]
    raise TypeError(
        f"{place}: a record holds numbers, texts, lists and mappings; "
        f"got {type(value).__name__}. Convert it, for example with str()"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        return value[1:] if _LOOKS_NOT_FINITE.fullmatch(value) else value
    if isinstance(value, list):
        return [_restored(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _restored(entry) for key, entry in value.items()}
    return value
