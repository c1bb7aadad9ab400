"""NumPy's ``.npz``: a zip archive of ``.npy`` members."""

from __future__ import annotations

import ast
import re
from math import prod

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.archives import Archive
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.dtypes import from_numpy
from reprolab.formats.elements import Stored, Strided
from reprolab.formats.sources import Part, Source
from reprolab.vocabulary import ITEMSIZE

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16
_KIND = re.compile(r"[<>|=]?[biufcV]\d+")


def is_npz(archive: Archive) -> bool:
    """Whether all members of an archive are NumPy arrays."""
    return bool(archive.names) and all(name.endswith(".npy") for name in archive.names)


def open_archive(archive: Archive, source: Source, path: str) -> CheckpointFile:
    """Open an ``.npz`` file; arrays of Python objects are never loaded."""
    contents = Contents(archive.label)
    for member in archive.names:
        _add(member.removesuffix(".npy").replace("/", "."), archive.open(member), contents)
    return CheckpointFile(
        path, "npz", contents.tensors, unsupported=contents.unsupported, close=source.close
    )


def _add(name: str, source: Source, contents: Contents) -> None:
    start = source.read(0, min(source.size, 12)).tobytes()
    if start[:6] != _MAGIC or len(start) < 12:
        raise DamagedData("the member is not a NumPy array", path=source.label)
    size = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + size], "little")
    if length > _LONGEST_HEADER:
        raise DamagedData(f"its header claims to be {length} bytes long", path=source.label)
    try:
        header = ast.literal_eval(source.read(8 + size, length).tobytes().decode("latin-1"))
        code, fortran, shape = header["descr"], bool(header["fortran_order"]), header["shape"]
        if not all(type(extent) is int and extent >= 0 for extent in shape):
            raise ValueError(f"shape {shape}")
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as why:
        raise DamagedData(f"its header makes no sense ({why})", path=source.label) from why
    if not isinstance(code, str) or not _KIND.fullmatch(code):
        contents.unsupported[name] = f"its dtype is {code!r}"
        return
    kind = np.dtype(code)
    dtype = from_numpy(kind)
    if dtype is None or kind.byteorder == ">":
        # NumPy writes bfloat16 and float8 as raw bytes without a name.
        reason = "is big-endian" if dtype else "has no fingerprint"
        contents.unsupported[name] = f"its dtype is {code!r}, which {reason}"
        return
    begin = 8 + size + length
    elements = Stored(Part(source, begin, source.size - begin), dtype)
    shape = tuple(shape)
    strides = None
    if fortran:
        strides = tuple(prod(shape[:dim]) for dim in range(len(shape)))
    try:
        if elements.size * ITEMSIZE[dtype] != source.size - begin:
            raise DamagedData("its bytes are not a whole number of elements")
        contents.put(name, Strided(elements, shape, strides))
    except DamagedData as error:
        raise error.at(path=source.label, tensor=name) from None
