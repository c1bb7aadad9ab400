"""Whole documents that others wrote: JSON, and pickles of nothing but plain values."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, NoReturn

from reprolab.errors import TraceError
from reprolab.traces.sources import Source

LARGEST = 512 << 20
"""Bytes beyond which a document is not read into memory."""


class PlainUnpickler(pickle.Unpickler):
    """Unpickles dicts, lists, tuples, strings, bytes, numbers, booleans and None; nothing else.

    A pickle is a program. Its only way to other people's code is to look up a class or function;
    that is refused, so nothing can run.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse."""
        raise TraceError(
            f"the pickle wants {module}.{name}; only plain values are read, nothing was executed"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse."""
        raise TraceError("the pickle refers to objects outside of it; nothing was loaded")


def load_json(source: Source) -> Any:
    """Read a JSON document.

    Raises
    ------
    TraceError
        If it is too large, no JSON or cut short.
    """
    try:
        return json.loads(_read(source))
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"this is no JSON, or it is cut short: {error}", path=source.name
        ) from error


def load_plain_pickle(source: Source) -> Any:
    """Read a pickle of plain values without executing anything.

    Raises
    ------
    TraceError
        If it is too large, damaged, or holds anything but plain values.
    """
    stream = io.BytesIO(_read(source))
    try:
        return PlainUnpickler(stream).load()
    except TraceError as error:
        raise error.at(path=source.name) from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise TraceError(
            f"the pickle is damaged or cut short: {error}", path=source.name
        ) from error


def _read(source: Source) -> bytes:
    with source.open() as stream:
        found = stream.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise TraceError(f"the file is larger than {LARGEST >> 20} MiB", path=source.name)
    return found
