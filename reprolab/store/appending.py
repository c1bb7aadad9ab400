"""A file that only grows, and that a refused write leaves as it was."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from reprolab.errors import RecordingFailed
from reprolab.store.durable import sync_handle, write_all

_PENDING_LIMIT = 4 << 20


class AppendedFile:
    """Gathers pieces in memory and hands them to the operating system together.

    What was handed over survives the death of this process; :meth:`sync` makes it survive a power
    cut as well. Where the disk refuses, the file is cut back to the last whole hand-over, so that
    a later, successful one never follows half a record; the pieces are kept and tried again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._handle: int | None = os.open(path, flags, 0o644)
        self._size = 0
        self._pending: list[bytes] = []
        self._pending_size = 0

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._handle is None

    def append(self, *pieces: bytes) -> None:
        """Add pieces that belong together."""
        if self._handle is None:
            raise RecordingFailed("this record is closed already", path=self.path)
        self._pending += pieces
        self._pending_size += sum(map(len, pieces))
        if self._pending_size > _PENDING_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Hand all pieces to the operating system.

        Raises
        ------
        RecordingFailed
            If they could not be written, for example because the disk is full.
        """
        if self._handle is None or not self._pending:
            return
        text = b"".join(self._pending)
        try:
            write_all(self._handle, [text])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise RecordingFailed(
                f"{len(text)} bytes could not be written ({error.strerror}); "
                "what was recorded before stays good. Free some space and go on",
                path=self.path,
            ) from error
        self._size += len(text)
        self._pending = []
        self._pending_size = 0

    def sync(self) -> None:
        """Make all pieces durable."""
        self.flush()
        if self._handle is not None:
            try:
                sync_handle(self._handle)
            except OSError as error:
                raise RecordingFailed(
                    f"the disk did not confirm what was written ({error.strerror})", path=self.path
                ) from error

    def close(self) -> None:
        """Make all pieces durable and close the file; a second call does nothing."""
        if self._handle is None:
            return
        try:
            self.sync()
        finally:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            os.close(handle)
