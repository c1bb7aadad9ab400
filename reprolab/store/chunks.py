"""Chunk files: the bytes of a chunk and their crc32c, written in one go and checked when read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import google_crc32c
import numpy as np

from reprolab.errors import DamagedData
from reprolab.store.durable import sync_all, write_file

CHECKSUM_BYTES = 4
_THREADS = 4


@dataclass(frozen=True, slots=True, eq=False)
class WriteRequest:
    """One file that is to be written: a chunk, or a text that says what chunks are."""

    path: Path
    data: np.ndarray | bytes
    """A chunk's bytes, uint8 [bytes] and contiguous, or a text."""
    size: int = 0
    """Bytes of a full chunk; no matter for a text."""

    def write(self, sync: bool) -> None:
        """Write it, durably or not."""
        if isinstance(self.data, bytes):
            write_file(self.path, self.data, sync=sync)
        else:
            write_chunk(self.path, self.data, self.size, sync=sync)


def write_requests(requests: Sequence[WriteRequest], *, sync: bool = True) -> None:
    """Write many files; one thread's bytes are on their way while another waits for the disk.

    Parameters
    ----------
    requests : sequence of WriteRequest
        Their folders are there.
    sync : bool
        Whether to return only when files and names are durable.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(WriteRequest.write, requests, repeat(sync)):
            pass
    if sync:
        sync_all({request.path.parent for request in requests})


def write_chunk(path: Path, data: np.ndarray, size: int, *, sync: bool = True) -> None:
    """Write one chunk; what it lacks to its full size is zeros.

    Parameters
    ----------
    path : Path
        Its file. One that exists is replaced.
    data : ndarray of uint8 [bytes]
        Contiguous; at most `size` bytes.
    size : int
        Bytes of a full chunk.
    sync : bool
        Whether to return only when the bytes are durable.
    """
    padding = bytes(size - len(data))
    found = google_crc32c.value(data)
    if padding:
        found = google_crc32c.extend(found, padding)
    write_file(path, data.data, padding, found.to_bytes(CHECKSUM_BYTES, "little"), sync=sync)


def read_chunk(path: Path, size: int, out: np.ndarray | None = None) -> np.ndarray:
    """Bytes of one chunk, checked.

    Parameters
    ----------
    path : Path
        Its file.
    size : int
        Bytes of a full chunk.
    out : ndarray of uint8 [bytes], optional
        Where to put the first bytes, if fewer than `size` are wanted or to save a copy.

    Returns
    -------
    ndarray of uint8 [bytes]
        `out`, or all `size` bytes.

    Raises
    ------
    DamagedData
        If the file is missing, of another size, or its checksum is wrong.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DamagedData(f"this chunk of {size} bytes is missing", chunk=path) from None
    try:
        length = os.fstat(handle).st_size
        if length != size + CHECKSUM_BYTES:
            raise DamagedData(
                f"this chunk must be {size + CHECKSUM_BYTES} bytes; it is {length}", chunk=path
            )
        # Only now is it known that so many bytes are there to be read.
        into = np.empty(size, np.uint8) if out is None else out
        rest = bytearray(size + CHECKSUM_BYTES - len(into))
        if _read_into(handle, into, rest) != length:
            raise DamagedData("this chunk ended while it was read", chunk=path)
    finally:
        os.close(handle)
    found = google_crc32c.extend(google_crc32c.value(into), bytes(rest[:-CHECKSUM_BYTES]))
    written = int.from_bytes(rest[-CHECKSUM_BYTES:], "little")
    if found != written:
        raise DamagedData(
            f"the checksum of this chunk is {found:08x}, and {written:08x} was written", chunk=path
        )
    return into


def read_chunks(paths: Sequence[Path], size: int, parts: Sequence[np.ndarray]) -> None:
    """Read several chunks of `size` bytes, each into its part, as :func:`read_chunk` does."""
    if len(paths) <= 1:
        for path, part in zip(paths, parts, strict=True):
            read_chunk(path, size, part)
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(read_chunk, paths, repeat(size), parts):
            pass


def _read_into(handle: int, into: np.ndarray, rest: bytearray) -> int:
    done = 0
    left = [into.data.cast("B"), memoryview(rest)] if len(into) else [memoryview(rest)]
    while left:
        read = os.readv(handle, left)
        if not read:
            break
        done += read
        while left and read >= len(left[0]):
            read -= len(left.pop(0))
        if read:
            left[0] = left[0][read:]
    return done
