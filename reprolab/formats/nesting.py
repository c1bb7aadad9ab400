"""Nested dicts and lists as flat, dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reprolab.errors import DamagedData
from reprolab.formats.pickles import Record

_DEEPEST = 100
_MOST = 1_000_000
_LONG = 1000
_ATOMS = frozenset((int, float, str, bool, type(None), bytes))


def leaves(value: Any, label: str) -> list[tuple[str, Any]]:
    """Everything in nested containers that is no container, under its dotted name.

    Parameters
    ----------
    value : object
        Dicts, lists and tuples, nested. A long list of mere numbers or words is left as it is.
    label : str
        What to call the file in messages.

    Raises
    ------
    DamagedData
        Where the nesting has no end, or names more things than a file can hold.

    Examples
    --------
    >>> leaves({"model": {"w": 1}, "steps": [2, 3]}, "example")
    [('model.w', 1), ('steps.0', 2), ('steps.1', 3)]
    """
    return list(_walk((), value, label, iter(range(_MOST))))


def _walk(
    path: tuple[str, ...], value: Any, label: str, budget: Iterator[int]
) -> Iterator[tuple[str, Any]]:
    # A few shared lists inside each other can spell out more names than there are atoms.
    if next(budget, None) is None:
        raise DamagedData(f"it names more than {_MOST} things", path=label)
    if len(path) > _DEEPEST:
        raise DamagedData(f"its containers are nested more than {_DEEPEST} deep", path=label)
    if isinstance(value, dict):
        inside = [(_name(key), part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)) and not _is_long(value):
        inside = [(str(index), part) for index, part in enumerate(value)]
    else:
        yield ".".join(path), value
        return
    for name, part in inside:
        yield from _walk((*path, name), part, label, budget)


def _is_long(values: list[Any] | tuple[Any, ...]) -> bool:
    return len(values) > _LONG and {type(value) for value in values} <= _ATOMS


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
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"<{len(value)} values>"
    return f"<{type(value).__name__}>"
