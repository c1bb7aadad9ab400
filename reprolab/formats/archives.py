"""Members of zip archives as sources, without unpacking."""

from __future__ import annotations

import lzma
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.sources import Part, Source, as_file, check_range

MAGIC = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"


def is_zip(source: Source) -> bool:
    """Whether a source begins like a zip archive."""
    return source.size >= 22 and source.read(0, 4).tobytes() in (MAGIC, _EMPTY)


@contextmanager
def _complaints(label: str) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as reason:
        raise DamagedData(
            f"the zip archive cannot be read ({reason}); copy it again from where it was written",
            path=label,
        ) from reason


class Archive:
    """A zip archive over any source."""

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self._source = source
        with _complaints(self.label):
            self._zip = zipfile.ZipFile(as_file(source))
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._zip.infolist():
            if member.filename in self._members:
                raise DamagedData(
                    f"the archive has two members {member.filename!r}; which one is meant is "
                    "anyone's guess",
                    path=self.label,
                )
            self._members[member.filename] = member

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members, in order, folders left out."""
        return tuple(name for name in self._members if not name.endswith("/"))

    def open(self, name: str) -> Source:
        """One member: a stretch of the archive where it is stored as it is, else unpacked."""
        member = self._members[name]
        label = f"{self.label}:{name}"
        with _complaints(label):
            if member.flag_bits & 1:
                raise ValueError("it is encrypted")
            header = self._source.read(member.header_offset, 30).tobytes()
            if header[:4] != MAGIC:
                raise ValueError("a member does not begin where the directory says")
            extra = sum(struct.unpack("<HH", header[26:30]))
        if member.compress_type != zipfile.ZIP_STORED:
            return Unpacked(self._zip, member, label)
        if member.compress_size != member.file_size:
            raise DamagedData("a stored member has two different sizes", path=label)
        return Part(self._source, member.header_offset + 30 + extra, member.file_size, label)


class Unpacked:
    """A compressed member, read forward.

    Reading on from where the last read ended costs nothing extra; going back starts over.
    """

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> None:
        self.label = label
        self.size = member.file_size
        self._lock = threading.Lock()
        with _complaints(label):
            self._stream = archive.open(member)

    def read(self, offset: int, length: int) -> np.ndarray:
        """Bytes of a range."""
        check_range(self, offset, length)
        with self._lock, _complaints(self.label):
            self._stream.seek(offset)
            found = self._stream.read(length)
        if len(found) != length:
            raise DamagedData(
                "a compressed member is shorter than the archive says", path=self.label
            )
        return np.frombuffer(found, np.uint8)

    def mapped(self) -> None:
        """Nothing: the bytes exist only as they are unpacked."""
        return

    def forget(self, offset: int, length: int) -> None:
        """Nothing was taken."""

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
