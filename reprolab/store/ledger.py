"""The ledger: facts of one rank, one record a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprolab.errors import DamagedData
from reprolab.store.appending import AppendedFile
from reprolab.store.records import seal, unseal

_OWN = {"kind", "step", "rank", "attempt", "crc"}


class LedgerWriter:
    """Appends facts."""

    def __init__(self, path: Path) -> None:
        self._file = AppendedFile(path)

    def append(self, kind: str, step: int | None, fields: dict[str, Any]) -> None:
        """Add one fact.

        Raises
        ------
        ValueError
            If a field has a name that every fact has.
        TypeError
            If a value is none of JSON's types.
        """
        if taken := _OWN & fields.keys():
            raise ValueError(f"fact {kind!r}: a field must not be named {sorted(taken)}")
        record = {"kind": kind, "step": step, **fields}
        if step is None:
            del record["step"]
        self._file.append(seal(record) + b"\n")

    def flush(self) -> None:
        """Hand all facts to the operating system."""
        self._file.flush()

    def sync(self) -> None:
        """Make all facts durable."""
        self._file.sync()

    def close(self) -> None:
        """Make all facts durable and close the file."""
        self._file.close()


def read_facts(path: Path, rank: int, attempt: int) -> Iterator[dict[str, Any]]:
    """Facts in the order in which they were written.

    A last line without its line break is what a crash, or a write under way, leaves: it is
    skipped unless it is whole.

    Raises
    ------
    DamagedData
        At the first line that does not check.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                fact = unseal(line.removesuffix(b"\n"))
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise DamagedData(
                    f"line {number} of {path.name} is damaged: {error}",
                    path=path,
                    rank=rank,
                ) from error
            yield {**fact, "rank": rank, "attempt": attempt}
