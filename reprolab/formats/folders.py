"""Folders of named files: on this machine, behind a URL, inside a zip archive."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from reprolab.errors import CheckpointNotFound, DamagedData, MissingLibrary
from reprolab.formats.sources import LocalFile, RemoteFile, Source

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://|[A-Za-z][A-Za-z0-9+.\-]+::")


class Folder(Protocol):
    """Files under names with slashes."""

    label: str
    """What to call it in messages."""

    def listing(self, below: str = "") -> tuple[list[str], list[str]]:
        """Names of the folders and of the files directly in the folder `below`, each sorted."""

    def has(self, name: str) -> bool:
        """Whether a file of this name exists."""

    def find(self, name: str) -> Source | None:
        """One file; None where there is none of this name."""

    def open(self, name: str) -> Source:
        """One file.

        Raises
        ------
        DamagedData
            Where it is missing.
        """

    def child(self, name: str) -> Folder:
        """The folder of this name."""


def inside(name: str, label: str) -> str:
    """Refuse a file name, read from a file, that points out of its folder.

    Raises
    ------
    DamagedData
        Naming it.
    """
    parts = re.split(r"[/\\]", name)
    if not name or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise DamagedData(f"the file name {name!r} points out of its folder", path=label)
    return name


def missing(name: str, label: str) -> DamagedData:
    """The error for a file that should be there."""
    return DamagedData(
        f"the file {name!r} is missing; the checkpoint is incomplete: copy all its files again",
        path=label,
    )


def _present(found: Source | None, name: str, label: str) -> Source:
    if found is None:
        raise missing(name, label)
    return found


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = str(path)

    def listing(self, below: str = "") -> tuple[list[str], list[str]]:
        """Names directly in a folder; none where there is no such folder."""
        folders: list[str] = []
        files: list[str] = []
        where = self.path / below
        if where.is_dir():
            for entry in where.iterdir():
                (folders if entry.is_dir() else files).append(entry.name)
        return sorted(folders), sorted(files)

    def has(self, name: str) -> bool:
        """Whether a file of this name exists."""
        return (self.path / name).is_file()

    def find(self, name: str) -> Source | None:
        """One file, if it exists."""
        path = self.path / inside(name, self.label)
        return LocalFile(path) if path.is_file() else None

    def open(self, name: str) -> Source:
        """One file."""
        return _present(self.find(name), name, self.label)

    def child(self, name: str) -> LocalFolder:
        """The folder of this name."""
        return LocalFolder(self.path / inside(name, self.label))


class RemoteFolder:
    """A prefix of an fsspec file system."""

    def __init__(self, files: Any, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self.label = files.unstrip_protocol(self._root)

    def listing(self, below: str = "") -> tuple[list[str], list[str]]:
        """Names directly below a prefix; none where there is nothing."""
        folders: list[str] = []
        files: list[str] = []
        where = f"{self._root}/{below}".rstrip("/")
        try:
            entries = self._files.ls(where, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        for entry in entries:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            (folders if entry["type"] == "directory" else files).append(name)
        return sorted(set(folders)), sorted(set(files))

    def has(self, name: str) -> bool:
        """Whether an object of this name exists."""
        return bool(self._files.isfile(f"{self._root}/{name}"))

    def find(self, name: str) -> Source | None:
        """One object, if it exists."""
        path = f"{self._root}/{inside(name, self.label)}"
        try:
            entry = self._files.info(path)
        except FileNotFoundError:
            return None
        if entry["type"] != "file":
            return None
        return RemoteFile(self._files, path, int(entry["size"]))

    def open(self, name: str) -> Source:
        """One object."""
        return _present(self.find(name), name, self.label)

    def child(self, name: str) -> RemoteFolder:
        """The prefix of this name."""
        return RemoteFolder(self._files, f"{self._root}/{inside(name, self.label)}")


class KeyedFolder:
    """Names with slashes over anything that opens one by its full name, such as an archive."""

    def __init__(self, label: str, names: Iterable[str], opener: Any, below: str = "") -> None:
        self.label = label
        self._names = frozenset(names)
        self._opener = opener
        self._below = below

    def listing(self, below: str = "") -> tuple[list[str], list[str]]:
        """Names directly in a folder."""
        prefix = self._below + (f"{below}/" if below else "")
        rest = [name[len(prefix) :] for name in self._names if name.startswith(prefix)]
        folders = {name.partition("/")[0] for name in rest if "/" in name}
        return sorted(folders), sorted(name for name in rest if name and "/" not in name)

    def has(self, name: str) -> bool:
        """Whether there is this name."""
        return self._below + name in self._names

    def find(self, name: str) -> Source | None:
        """What stands under a name, if there is such a name."""
        if not self.has(name):
            return None
        source: Source = self._opener(self._below + name)
        return source

    def open(self, name: str) -> Source:
        """What stands under a name."""
        return _present(self.find(name), name, self.label)

    def child(self, name: str) -> KeyedFolder:
        """The folder of this name."""
        return KeyedFolder(self.label, self._names, self._opener, f"{self._below}{name}/")


def locate(address: str) -> tuple[Source | None, Folder | None]:
    """The file or the folder at a path or URL; the other one is None.

    Parameters
    ----------
    address : str
        A path, or a URL that fsspec understands (``s3://``, ``gs://``, ``memory://`` ...).

    Raises
    ------
    CheckpointNotFound
        Where nothing is there.
    MissingLibrary
        Where the URL needs a library that is not installed.
    """
    if address.startswith("file://"):
        address = unquote(urlsplit(address).path)
    if not URL.match(address):
        path = Path(address)
        if path.is_dir():
            return None, LocalFolder(path)
        if path.is_file():
            return LocalFile(path), None
        raise CheckpointNotFound("there is no file or folder at this path", path=address)
    try:
        from fsspec.core import url_to_fs

        files, path_there = url_to_fs(address)
    except ImportError as reason:
        raise MissingLibrary(
            f"opening a URL needs fsspec and the library of its protocol ({reason}); "
            'install "reprolab[formats]", and for s3 or gs also s3fs or gcsfs',
            path=address,
        ) from reason
    except ValueError as reason:
        raise CheckpointNotFound(
            f"not a URL that fsspec understands: {reason}", path=address
        ) from None
    if files.isfile(path_there):
        return RemoteFile(files, path_there, int(files.size(path_there))), None
    if not files.exists(path_there):
        raise CheckpointNotFound("there is no object or prefix at this URL", path=address)
    return None, RemoteFolder(files, path_there)
