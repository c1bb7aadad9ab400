"""The files of a trace: one file, a folder of one a rank, or an archive of such a folder."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from reprolab.errors import TraceError

HEAD = 1 << 16
"""Bytes looked at to tell what a file is."""

_RANK = re.compile(r"(?:rank|worker|gpu)[-_ .]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Source:
    """One file, wherever it is."""

    name: str
    """Its path, with that of the archive in front."""
    _open: Callable[[], IO[bytes]]

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open its bytes, unpacked when they are gzip.

        Raises
        ------
        TraceError
            While reading, when the compressed bytes are damaged or cut short.
        """
        with self._open() as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            try:
                yield cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise TraceError(
                    f"the compressed file is damaged or cut short: {error}", path=self.name
                ) from error

    def head(self) -> bytes:
        """Its first bytes."""
        with self.open() as stream:
            return stream.read(HEAD)

    @property
    def stem(self) -> str:
        """Its file name without folders."""
        return self.name.replace("\\", "/").rpartition("/")[2]

    def rank(self) -> int | None:
        """The rank its name speaks of: ``rank3``, ``worker_3``, or else the first number."""
        found = _RANK.search(self.stem)
        if found:
            return int(found.group(1))
        numbers = _NUMBER.findall(self.stem)
        return int(numbers[0]) if numbers and len(numbers[0]) <= 6 else None


@contextmanager
def sources(path: Path) -> Iterator[list[Source]]:
    """The files at `path`, in the order of their names; open only inside the context.

    Parameters
    ----------
    path : pathlib.Path
        A file, a folder (with its subfolders), or a ``.tar`` archive, compressed or not. Archives
        are read where they are; nothing is unpacked to disk.

    Raises
    ------
    TraceError
        If there is nothing, or an archive is damaged.
    """
    if path.is_dir():
        found = [
            Source(str(file), _opener(file)) for file in sorted(path.rglob("*")) if file.is_file()
        ]
        yield _some(found, path)
    elif not path.is_file():
        raise TraceError("there is no such file or folder", path=path)
    elif _is_archive(path):
        try:
            with tarfile.open(path) as archive:
                members = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
                found = [Source(f"{path}/{m.name}", _member(archive, m)) for m in members]
                yield _some(found, path)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise TraceError(f"the archive is damaged or cut short: {error}", path=path) from error
    else:
        yield [Source(str(path), _opener(path))]


def _is_archive(path: Path) -> bool:
    return ".tar" in path.suffixes or path.suffix == ".tgz"


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    return lambda: cast(IO[bytes], archive.extractfile(member))


def _some(found: list[Source], path: Path) -> list[Source]:
    found = [source for source in found if not source.stem.startswith(".")]
    if not found:
        raise TraceError("there are no files here", path=path)
    return found
