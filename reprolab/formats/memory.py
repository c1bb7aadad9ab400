"""Memory is asked for before it is taken, so that a header that lies cannot exhaust a machine."""

from __future__ import annotations

import os

from reprolab.errors import TooLarge

LIMIT = 1 << 30
"""Bytes that one decoded chunk, and the bookkeeping of one pass, may take."""


def reserve(nbytes: int, what: str) -> None:
    """Refuse to take more memory than this machine has.

    Raises
    ------
    TooLarge
        Saying what would need how much.
    """
    if nbytes > LIMIT and nbytes > _physical():
        raise TooLarge(
            f"{what} would take {amount(nbytes)} of memory, and this machine has "
            f"{amount(_physical())}; read it by regions or blocks instead"
        )


def within_limit(nbytes: int, what: str) -> None:
    """Refuse what must be in memory at once and is larger than :data:`LIMIT`.

    Raises
    ------
    TooLarge
        Saying what would need how much.
    """
    if nbytes > LIMIT:
        raise TooLarge(f"{what} takes {amount(nbytes)} of memory at once; at most {amount(LIMIT)}")


def amount(nbytes: int) -> str:
    """A number of bytes for a message."""
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def _physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
