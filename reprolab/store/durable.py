"""Files that are there whole or not at all, and stay after a power cut.

On POSIX file systems a rename is atomic and a link to a name that exists fails. Both also hold on
NFS, Lustre and GlusterFS, except that an NFS server whose answer is lost may report a failure of
a link that it made; the name then exists, which is what a reader looks at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_SYNCING = 4


def write_file(path: Path, *pieces: bytes | memoryview, sync: bool = True) -> None:
    """Write a file with one system call where the pieces allow it; an existing one is replaced."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(handle, pieces)
        if sync:
            sync_handle(handle)
    finally:
        os.close(handle)


def write_all(handle: int, pieces: Iterable[bytes | memoryview]) -> None:
    """Write every byte of `pieces` to an open file."""
    left = [memoryview(piece) for piece in pieces if len(piece)]
    while left:
        written = os.writev(handle, left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]


def publish_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one go, never over an existing file.

    Raises
    ------
    FileExistsError
        If `path` exists already.
    """
    draft = _draft(path)
    try:
        write_file(draft, data)
        try:
            os.link(draft, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                raise FileExistsError(errno.EEXIST, "the file exists already", str(path)) from None
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    try:
        sync_folder(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def sync_handle(handle: int) -> None:
    """Make the bytes of an open file durable."""
    if sys.platform == "darwin":
        # There fsync leaves the bytes in the disk's own cache.
        with contextlib.suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_handle(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder and need not.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def sync_all(names: Iterable[Path]) -> None:
    """Make the bytes of files and the names in folders durable, many at a time.

    A disk confirms many requests that wait together in little more time than one.
    """
    with ThreadPoolExecutor(_SYNCING) as threads:
        for _ in threads.map(_sync, names):
            pass


def _sync(name: Path) -> None:
    if name.is_dir():
        sync_folder(name)
        return
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_handle(handle)
    finally:
        os.close(handle)


class Drafts:
    """Files that are written beside their places and then put there together.

    Each is durable before it takes its place, so a file that stood there is never lost to a crash.
    What was not published is removed in the end.
    """

    def __init__(self) -> None:
        self._places: dict[Path, Path] = {}

    def __enter__(self) -> Drafts:
        return self

    def __exit__(self, *_: object) -> None:
        for draft in self._places:
            draft.unlink(missing_ok=True)

    def add(self, path: Path) -> Path:
        """Where to write what belongs at `path`."""
        draft = _draft(path)
        self._places[draft] = path
        return draft

    def publish(self) -> None:
        """Put all files in their places."""
        sync_all(self._places)
        for draft, path in self._places.items():
            draft.replace(path)
        sync_all({path.parent for path in self._places.values()})
        self._places = {}


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one go, whether or not something is there."""
    with Drafts() as drafts:
        write_file(drafts.add(path), data, sync=False)
        drafts.publish()


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.draft")
