"""Pickles read as data: a machine that knows how to build containers, and nothing to call.

A pickle is a program. The usual way to restrict it is to let Python's machine run and to hide most
names from it. Here the machine itself is another one: it has no attribute access, no import and no
call. Where the program names a class or function, the name must stand in a table that maps the
exact pair (module, name) to a plain value or to one of our own makers; any other name is refused,
and so is every instruction that ordinary data does not need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from reprolab.errors import DamagedData, RefusedPickle

_LONGEST_INTEGER = 64
"""Bytes of the longest integer that is read; generators of random numbers keep 128-bit ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """What a name in the table stands for when the pickle calls it: a function of ours."""

    make: Callable[..., Any]


@dataclass(slots=True, eq=False)
class Record:
    """An inert stand-in for an object: what it was made of, and nothing that acts."""

    kind: str
    """Full name of its class."""
    args: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute it was saved with."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default


def stand_in(module: str, name: str) -> Maker:
    """A maker of inert stand-ins for a class."""
    kind = f"{module}.{name}"
    return Maker(lambda *args: Record(kind, args))


Allowed = Mapping[tuple[str, str], Any]
"""Exact (module, name) to a plain value or a :class:`Maker`."""

_MARK = object()
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))


def load(
    data: bytes,
    allowed: Allowed,
    label: str,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Read a pickle as data.

    Parameters
    ----------
    data : bytes
        The pickle, protocol 2 to 5.
    allowed : mapping of (str, str) to object
        What each class or function that may be named stands for.
    label : str
        What to call the file in messages.
    persistent : callable, optional
        Resolves a persistent id, as torch uses them for storages.

    Raises
    ------
    RefusedPickle
        Where it names anything else, or uses an instruction that data does not need.
    DamagedData
        Where it is cut off or makes no sense.
    """
    machine = _Machine(data, allowed, label, persistent)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, RecursionError) as reason:
        raise DamagedData(
            f"the pickle inside makes no sense at byte {machine.place}: "
            f"{type(reason).__name__}: {reason}",
            path=label,
        ) from None


class _Machine:
    def __init__(
        self,
        data: bytes,
        allowed: Allowed,
        label: str,
        persistent: Callable[[Any], Any] | None,
    ) -> None:
        self.place = 0
        self._data = data
        self._allowed = allowed
        self._label = label
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, steps = self._data, _STEPS
        while True:
            code = data[self.place]
            self.place += 1
            if code == 0x2E:
                return self._stack.pop()
            step = steps.get(code)
            if step is None:
                raise RefusedPickle(
                    f"the pickle inside uses instruction {bytes([code])!r}, which tensors and "
                    "plain data do not need; nothing was run. Save the tensors as safetensors",
                    path=self._label,
                )
            step(self)

    def take(self, count: int) -> bytes:
        found = self._data[self.place : self.place + count]
        if len(found) < count:
            raise DamagedData("the pickle inside is cut off", path=self._label)
        self.place += count
        return found

    def byte(self) -> int:
        value = self._data[self.place]
        self.place += 1
        return value

    def number(self, width: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> str:
        end = self._data.index(b"\n", self.place)
        text = self._data[self.place : end].decode()
        self.place = end + 1
        return text

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def text(self, length: int) -> None:
        self.push(self.take(length).decode("utf-8", "surrogatepass"))

    def integer(self, length: int) -> None:
        if length > _LONGEST_INTEGER:
            raise DamagedData(f"an integer of {length} bytes", path=self._label)
        self.push(int.from_bytes(self.take(length), "little", signed=True))

    def since_mark(self) -> list[Any]:
        index = len(self._stack) - 1
        while self._stack[index] is not _MARK:
            index -= 1
            if index < 0:
                raise ValueError("no mark")
        found = self._stack[index + 1 :]
        del self._stack[index:]
        return found

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self._stack) < count:
            raise ValueError("the stack is too short")
        found = tuple(self._stack[-count:])
        del self._stack[-count:]
        return found

    def named(self, module: Any, name: Any) -> None:
        found = self._allowed.get((module, name), _MARK) if isinstance(name, str) else _MARK
        # Dotted names would reach attributes; no table holds one, and none shall.
        if found is _MARK or "." in name:
            self._refuse(module, name)
        self.push(found)

    def _refuse(self, module: Any, name: Any) -> NoReturn:
        raise RefusedPickle(
            f"the file asks for {module}.{name}, which reading tensors does not need; nothing was "
            "run. If you trust it, open it with the tool that wrote it and save the tensors alone, "
            "best as safetensors",
            path=self._label,
        )

    def call(self) -> None:
        maker, args = self.last(2)
        if not isinstance(maker, Maker) or not isinstance(args, tuple):
            raise TypeError(f"{type(maker).__name__} is not a class or function that may be named")
        self.push(maker.make(*args))

    def build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, Record):
            target.state = state
        elif not isinstance(target, dict):
            raise TypeError(f"a {type(target).__name__} has no state")

    def set_items(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        into = target.items if isinstance(target, Record) else target
        if not isinstance(into, dict) or len(pairs) % 2:
            raise TypeError(f"a {type(target).__name__} holds no items")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            into[checked_key(key)] = value

    def extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise TypeError(f"a {type(target).__name__} is no list")
        target.extend(values)

    def add(self) -> None:
        values = self.since_mark()
        target = self._stack[-1]
        if not isinstance(target, set):
            raise TypeError(f"a {type(target).__name__} is no set")
        target.update(checked_key(value) for value in values)

    def persist(self) -> None:
        if self._persistent is None:
            raise ValueError("a reference out of the pickle")
        self.push(self._persistent(self._stack.pop()))

    def remember(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def recall(self, index: int) -> None:
        self.push(self._memo[index])


def checked_key(key: Any) -> Any:
    """A dict key: plain, an inert object by identity, or a flat tuple; hashing must not recurse."""
    flat = key if type(key) is tuple else (key,)
    if not all(isinstance(part, (*_PLAIN_KEYS, Record)) for part in flat):
        raise TypeError(f"a {type(key).__name__} as a key")
    return key


def _dict_of(pairs: list[Any]) -> dict[Any, Any]:
    return {checked_key(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


_Step = Callable[[_Machine], object]

_STEPS: dict[int, _Step] = {
    ord(code): step
    for code, step in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME
        "(": lambda m: m.push(_MARK),
        "0": lambda m: m._stack.pop(),
        "1": lambda m: m.since_mark(),
        "2": lambda m: m.push(m._stack[-1]),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "J": lambda m: m.push(m.number(4, signed=True)),
        "K": lambda m: m.push(m.byte()),
        "M": lambda m: m.push(m.number(2)),
        "\x8a": lambda m: m.integer(m.byte()),
        "\x8b": lambda m: m.integer(m.number(4)),
        "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        "X": lambda m: m.text(m.number(4)),
        "\x8c": lambda m: m.text(m.byte()),
        "\x8d": lambda m: m.text(m.number(8)),
        "B": lambda m: m.push(m.take(m.number(4))),
        "C": lambda m: m.push(m.take(m.byte())),
        "\x8e": lambda m: m.push(m.take(m.number(8))),
        "\x96": lambda m: m.push(m.take(m.number(8))),  # BYTEARRAY8
        "T": lambda m: m.push(m.take(m.number(4)).decode("latin-1")),  # Python 2 strings
        "U": lambda m: m.push(m.take(m.byte()).decode("latin-1")),
        "]": lambda m: m.push([]),
        "}": lambda m: m.push({}),
        ")": lambda m: m.push(()),
        "\x8f": lambda m: m.push(set()),
        "\x85": lambda m: m.push(m.last(1)),
        "\x86": lambda m: m.push(m.last(2)),
        "\x87": lambda m: m.push(m.last(3)),
        "t": lambda m: m.push(tuple(m.since_mark())),
        "l": lambda m: m.push(m.since_mark()),
        "d": lambda m: m.push(_dict_of(m.since_mark())),
        "\x91": lambda m: m.push(frozenset(checked_key(value) for value in m.since_mark())),
        "a": lambda m: m.extend([m._stack.pop()]),
        "e": lambda m: m.extend(m.since_mark()),
        "s": lambda m: m.set_items(list(m.last(2))),
        "u": lambda m: m.set_items(m.since_mark()),
        "\x90": lambda m: m.add(),
        "c": lambda m: m.named(m.line(), m.line()),
        "\x93": lambda m: m.named(*m.last(2)),
        "R": lambda m: m.call(),
        "\x81": lambda m: m.call(),  # NEWOBJ: a class and its arguments, the same to a table
        "b": lambda m: m.build(),
        "Q": lambda m: m.persist(),
        "q": lambda m: m.remember(m.byte()),
        "r": lambda m: m.remember(m.number(4)),
        "\x94": lambda m: m.remember(len(m._memo)),
        "h": lambda m: m.recall(m.byte()),
        "j": lambda m: m.recall(m.number(4)),
    }.items()
}
"""What each instruction does. INST, OBJ, NEWOBJ_EX, EXT, NEXT_BUFFER and text forms are out."""
