"""The journal: fingerprints of each step as they come, each record with its checksums.

A file begins with twelve bytes that name it and its version. Records follow: a head of 48 bytes
that says what the record is and how long its payload is, and the payload. Head and payload each
have a checksum. A record that the end of the file cuts off is what a crash leaves and is skipped;
any other that does not check is damage.
"""

from __future__ import annotations

import json
import os
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np

from reprolab.errors import DamagedData
from reprolab.kernels import Fingerprint
from reprolab.store import paths
from reprolab.store.appending import AppendedFile
from reprolab.store.layouts import layout_from, layout_record, stream_digest
from reprolab.store.records import FORMAT, check_format
from reprolab.vocabulary import LANES, MOMENTS, Layout

_NAME = struct.Struct("<6sHI")
_MAGIC = b"RLJRNL"
_HEAD = struct.Struct("<4sHHQqIIQI")
_CHECK = struct.Struct("<I")
_HEAD_BYTES = _HEAD.size + _CHECK.size
_MARK = b"rec\n"
_LAYOUT, _ROWS = 1, 2
_ROW_BYTES = 8 * (1 + len(MOMENTS) + LANES)
_LAYOUT_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded fingerprint: where it is and what it is of."""

    step: int
    stream: str
    layout: Layout
    digest: int
    """Digest of the whole stream."""
    offset: int
    """Where its payload begins in the file."""
    checksum: int


class JournalWriter:
    """Appends fingerprints of one rank."""

    def __init__(self, path: Path) -> None:
        self._file = AppendedFile(path)
        name = _NAME.pack(_MAGIC, FORMAT, 0)[: -_CHECK.size]
        self._file.append(name, _CHECK.pack(google_crc32c.value(name)))
        self._file.flush()
        self._numbers: dict[tuple[str, Layout], int] = {}
        self._current: dict[str, tuple[Layout, int]] = {}
        self._last: dict[str, int] = {}

    def append(self, step: int, stream: str, layout: Layout, fingerprint: Fingerprint) -> None:
        """Record the block rows of one stream at one step.

        Raises
        ------
        ValueError
            If the rows are not those of the layout or the step does not follow the last one.
        RecordingFailed
            If the disk refuses.
        """
        rows = layout.rows
        shapes = ((rows,), (rows, len(MOMENTS)), (rows, LANES))
        parts = (fingerprint.digest, fingerprint.moments, fingerprint.sketch)
        if any(part.shape != shape for part, shape in zip(parts, shapes, strict=True)):
            raise ValueError(
                f"stream {stream!r}: the layout has {rows} block rows; "
                f"the fingerprint has arrays of {[part.shape for part in parts]}"
            )
        if fingerprint.border is not None:
            raise ValueError(f"stream {stream!r}: merge the shards first; this is one shard's part")
        if step <= self._last.get(stream, -1):
            raise ValueError(
                f"stream {stream!r}: steps are recorded once, in order, from 0; "
                f"got {step} after {self._last.get(stream)}"
            )
        number = self._number(stream, layout)
        payload = b"".join(
            np.ascontiguousarray(part, dtype=dtype).tobytes()
            for part, dtype in zip(parts, ("<u8", "<f8", "<f8"), strict=True)
        )
        digest = int(stream_digest(layout, fingerprint.digest))
        self._append(_ROWS, payload, step, number, rows, digest)
        self._last[stream] = step

    def flush(self) -> None:
        """Hand all records to the operating system."""
        self._file.flush()

    def sync(self) -> None:
        """Make all records durable."""
        self._file.sync()

    def close(self) -> None:
        """Make all records durable and close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._file.closed

    def _number(self, stream: str, layout: Layout) -> int:
        current, number = self._current.get(stream, (None, -1))
        if layout is current or layout == current:
            return number
        if (stream, layout) not in self._numbers:
            number = self._numbers[stream, layout] = len(self._numbers)
            text = json.dumps({"stream": stream, **layout_record(layout)}).encode()
            self._append(_LAYOUT, text, 0, number, layout.rows, 0)
        number = self._numbers[stream, layout]
        self._current[stream] = layout, number
        return number

    def _append(
        self, kind: int, payload: bytes, step: int, layout: int, rows: int, digest: int
    ) -> None:
        head = _HEAD.pack(
            _MARK, kind, 0, len(payload), step, layout, rows, digest, google_crc32c.value(payload)
        )
        self._file.append(head, _CHECK.pack(google_crc32c.value(head)), payload)


class JournalReader:
    """The records of a journal as they were when it was opened.

    The file stays open, so that a journal folded and removed meanwhile can still be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)
        self.size = os.fstat(self._handle).st_size
        self.entries: list[Entry] = list(self._scan())

    def read(self, entry: Entry) -> Fingerprint:
        """Block rows of one entry, checked."""
        rows = entry.layout.rows
        payload = self._payload(entry.offset, rows * _ROW_BYTES, entry.checksum)
        numbers = np.frombuffer(payload, "<f8")
        digest = np.frombuffer(payload, "<u8", rows)
        middle = rows * (1 + len(MOMENTS))
        moments = numbers[rows:middle].reshape(rows, len(MOMENTS))
        sketch = numbers[middle:].reshape(rows, LANES)
        return Fingerprint(digest, moments, sketch)

    def _scan(self) -> Iterator[Entry]:
        name = os.pread(self._handle, _NAME.size, 0)
        if len(name) < _NAME.size:
            return
        magic, version, checksum = _NAME.unpack(name)
        if magic != _MAGIC or checksum != google_crc32c.value(name[: -_CHECK.size]):
            raise DamagedData(f"a journal does not begin with {name!r}", path=self.path)
        check_format(version, self.path)
        layouts: list[tuple[str, Layout]] = []
        place = _NAME.size
        while place + _HEAD_BYTES <= self.size:
            head = os.pread(self._handle, _HEAD_BYTES, place)
            found = google_crc32c.value(head[: _HEAD.size])
            if found != _CHECK.unpack_from(head, _HEAD.size)[0]:
                raise self._damage(place, "the checksum of its head is wrong")
            mark, kind, _, length, step, number, rows, digest, checksum = _HEAD.unpack_from(head)
            payload, place = place + _HEAD_BYTES, place + _HEAD_BYTES + length
            if place > self.size:
                return
            if mark == _MARK and kind == _LAYOUT and length < _LAYOUT_LIMIT:
                layouts.append(self._layout(payload, length, checksum))
            elif mark == _MARK and kind == _ROWS and number < len(layouts):
                stream, layout = layouts[number]
                if not rows == layout.rows == length / _ROW_BYTES:
                    raise self._damage(payload - _HEAD_BYTES, "its rows are not its layout's")
                yield Entry(step, stream, layout, digest, payload, checksum)
            else:
                raise self._damage(payload - _HEAD_BYTES, f"it is of the unknown kind {kind}")

    def _layout(self, offset: int, length: int, checksum: int) -> tuple[str, Layout]:
        text = self._payload(offset, length, checksum)
        try:
            record = json.loads(text)
            return paths.check_stream_name(record["stream"]), layout_from(record)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damage(offset - _HEAD_BYTES, f"it is no layout: {error!r}") from error

    def _payload(self, offset: int, length: int, checksum: int) -> bytes:
        pieces = []
        while length and (piece := os.pread(self._handle, length, offset)):
            pieces.append(piece)
            length, offset = length - len(piece), offset + len(piece)
        payload = b"".join(pieces)
        if length or google_crc32c.value(payload) != checksum:
            raise self._damage(offset - len(payload) - _HEAD_BYTES, "the checksum is wrong")
        return payload

    def _damage(self, offset: int, why: str) -> DamagedData:
        return DamagedData(f"the record at byte {offset} is damaged: {why}", path=self.path)
