"""Bytes that are read by range: a file, an object behind a URL, a part of either."""

from __future__ import annotations

import io
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.memory import reserve


class Source(Protocol):
    """Bytes of known length."""

    label: str
    """What to call it in messages."""
    size: int
    """Length in bytes."""

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes ``[offset, offset + length)`` as a fresh array, uint8 [length]."""

    def mapped(self) -> np.ndarray | None:
        """All bytes as memory that is read when touched, uint8 [size]; None where there is none."""

    def forget(self, offset: int, length: int) -> None:
        """Give back the memory that touching a range of the mapping took; it stays readable."""

    def close(self) -> None:
        """Release what is held open. Arrays handed out stay valid."""


def check_range(source: Source, offset: int, length: int) -> None:
    """Refuse a range that reaches past the end, before memory is taken for it.

    Raises
    ------
    DamagedData
        Naming the source.
    """
    if offset < 0 or length < 0 or offset + length > source.size:
        raise DamagedData(
            f"bytes {offset} to {offset + length} are needed, and there are {source.size}; "
            "the file is truncated or its header lies: copy it again from where it was written",
            path=source.label,
        )
    reserve(length, f"{length} bytes of {source.label}")


_MOST_HANDLES = 256
"""Files kept open at a time in a process; the shards of thousands of ranks are opened as read."""

_handles = threading.BoundedSemaphore(_MOST_HANDLES)


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path
        self._closed = False
        self._mapping: mmap.mmap | None = None
        handle = os.open(path, os.O_RDONLY)
        self.size = os.fstat(handle).st_size
        self._handle: int | None = handle if _handles.acquire(blocking=False) else None
        if self._handle is None:
            os.close(handle)

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes of a range; see :class:`Source`."""
        check_range(self, offset, length)
        found = np.empty(length, np.uint8)
        with self._opened() as handle:
            rest = found.data
            while rest:
                count = os.preadv(handle, [rest[: 1 << 30]], offset)
                if not count:
                    raise DamagedData("the file became shorter while it was read", path=self.label)
                rest, offset = rest[count:], offset + count
        return found

    def mapped(self) -> np.ndarray | None:
        """The whole file as a read-only mapping, unless too many files are open already."""
        if self._closed:
            raise ValueError(f"{self.label} is closed; open the checkpoint again")
        if not self.size or self._handle is None:
            return np.empty(0, np.uint8) if not self.size else None
        if self._mapping is None:
            try:
                self._mapping = mmap.mmap(self._handle, self.size, access=mmap.ACCESS_READ)
            except ValueError:
                raise DamagedData(
                    "the file became shorter since it was opened", path=self.label
                ) from None
        return np.frombuffer(self._mapping, np.uint8)

    def forget(self, offset: int, length: int) -> None:
        """Take the pages out of this process; the system keeps them cached while it can."""
        if self._mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            first = offset - offset % mmap.PAGESIZE
            self._mapping.madvise(mmap.MADV_DONTNEED, first, offset + length - first)

    def close(self) -> None:
        """Close the file; the mapping goes with the last array that uses it."""
        self._closed = True
        if self._handle is not None:
            os.close(self._handle)
            _handles.release()
        self._handle = self._mapping = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._closed:
            raise ValueError(f"{self.label} is closed; open the checkpoint again")
        if self._handle is not None:
            yield self._handle
            return
        handle = os.open(self._path, os.O_RDONLY)
        try:
            yield handle
        finally:
            os.close(handle)


class RemoteFile:
    """An object behind an fsspec file system."""

    def __init__(self, files: Any, path: str, size: int) -> None:
        self.label = files.unstrip_protocol(path)
        self.size = size
        self._files = files
        self._path = path

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes of a range, by one request."""
        check_range(self, offset, length)
        if not length:
            return np.empty(0, np.uint8)
        found = self._files.cat_file(self._path, start=offset, end=offset + length)
        if len(found) != length:
            raise DamagedData(
                f"asked for {length} bytes at {offset} and got {len(found)}; "
                "the server ignores ranges, or the object changed",
                path=self.label,
            )
        return np.frombuffer(found, np.uint8)

    def mapped(self) -> None:
        """Nothing: each byte is a request."""
        return

    def forget(self, offset: int, length: int) -> None:
        """Nothing was taken."""

    def close(self) -> None:
        """Nothing is held open."""


class Held:
    """Bytes already in memory."""

    def __init__(self, data: bytes | np.ndarray, label: str) -> None:
        self.label = label
        self._data = np.frombuffer(data, np.uint8)
        self.size = len(self._data)

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes of a range."""
        check_range(self, offset, length)
        return self._data[offset : offset + length].copy()

    def mapped(self) -> np.ndarray:
        """The bytes themselves."""
        return self._data

    def forget(self, offset: int, length: int) -> None:
        """Nothing was taken."""

    def close(self) -> None:
        """Nothing is held open."""


class Part:
    """A stretch of another source, which stays the owner of what is open."""

    def __init__(self, whole: Source, offset: int, size: int, label: str | None = None) -> None:
        self.label = label or whole.label
        if offset < 0 or size < 0 or offset + size > whole.size:
            raise DamagedData(
                f"bytes {offset} to {offset + size} are needed, and there are {whole.size}; "
                "the file is truncated or its header lies: copy it again from where it was written",
                path=self.label,
            )
        self.size = size
        self._whole = whole
        self._offset = offset

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes of a range."""
        check_range(self, offset, length)
        return self._whole.read(self._offset + offset, length)

    def mapped(self) -> np.ndarray | None:
        """The stretch of the owner's mapping."""
        mapped = self._whole.mapped()
        return None if mapped is None else mapped[self._offset : self._offset + self.size]

    def forget(self, offset: int, length: int) -> None:
        """Give back the stretch of the owner's mapping."""
        self._whole.forget(self._offset + offset, length)

    def close(self) -> None:
        """Nothing: the owner closes."""


class _Seekable(io.RawIOBase):
    """A source in the shape that libraries expect of an open file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError(f"cannot seek before the start of {self._source.label}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        with self._lock:
            count = max(0, min(len(buffer), self._source.size - self._position))
            if count:
                data = self._source.read(self._position, count)
                memoryview(buffer)[:count] = data.data
                self._position += count
            return count


def as_file(source: Source) -> io.BufferedReader:
    """A source as a seekable binary file, for libraries that want one."""
    return io.BufferedReader(_Seekable(source), 1 << 16)
