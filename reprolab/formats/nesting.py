"""Nested dicts and lists as flat, dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reprolab.errors import DamagedData
from reprolab.formats.pickles import Record

_DEEPEST = 100
_MOST = 5_000_000


def leaves(value: Any, label: str) -> Iterator[tuple[str, Any]]:
    """Everything in nested containers that is no container, under its dotted name.

    Parameters
    ----------
    value : object
        Dicts, lists, tuples and stand-ins, nested.
    label : str
        What to call the file in messages.

    Raises
    ------
    DamagedData
        Where the nesting has no end, or names more things than a file can hold.

    Examples
    --------
    >>> list(leaves({"model": {"w": 1}, "steps": [2, 3]}, "example"))
    [('model.w', 1), ('steps.0', 2), ('steps.1', 3)]
    """
    for count, leaf in enumerate(_walk((), value, label)):
        if count >= _MOST:
            # A few shared lists inside each other can spell out more names than there are atoms.
            raise DamagedData(f"it names more than {_MOST} things", path=label)
        yield leaf


def _walk(path: tuple[str, ...], value: Any, label: str) -> Iterator[tuple[str, Any]]:
    if len(path) > _DEEPEST:
        raise DamagedData(f"its containers are nested more than {_DEEPEST} deep", path=label)
    if isinstance(value, dict):
        inside = [(_name(key), part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        inside = [(str(index), part) for index, part in enumerate(value)]
    else:
        yield ".".join(path), value
        return
    for name, part in inside:
        yield from _walk((*path, name), part, label)


def _name(key: Any) -> str:
    if isinstance(key, tuple):
        return "/".join(_name(part) for part in key)
    return key.kind if isinstance(key, Record) else str(key)


def joined(*words: str) -> str:
    """Words joined by dots, empty ones left out."""
    return ".".join(word for word in words if word)


def plain(value: Any) -> Any:
    """A leaf as something that may stand in metadata: a number, a word, or what it was."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Record):
        return f"<{value.kind}>"
    return f"<{type(value).__name__}>"
