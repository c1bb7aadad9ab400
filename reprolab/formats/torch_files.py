"""Files of ``torch.save``: a zip archive with a pickle and one member a storage.

The pickle is read as data (:mod:`reprolab.formats.pickles`) and storages where they lie, so torch
itself is not needed, no more is read than what is asked for, and there is nothing that could run.
This allows what ``torch.load(..., mmap=True, weights_only=True)`` allows, and stand-ins for a few
harmless classes.
"""

from __future__ import annotations

from typing import Any

from reprolab.errors import DamagedData, RefusedPickle, ReprolabError, UnsupportedFormat
from reprolab.formats.archives import Archive
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.dtypes import from_numpy
from reprolab.formats.elements import Stored, Strided
from reprolab.formats.memory import within_limit
from reprolab.formats.nesting import joined, leaves, plain
from reprolab.formats.pickles import Allowed, load
from reprolab.formats.sources import Source
from reprolab.formats.tensors import InMemory
from reprolab.formats.torch_objects import (
    ALLOWED,
    ArrayRef,
    NotDense,
    TensorRef,
    resolved,
    storage,
)

LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""How files of torch before 1.6 begin."""


def is_torch(archive: Archive) -> bool:
    """Whether an archive is one of ``torch.save``."""
    return _pickle_name(archive) is not None


def _pickle_name(archive: Archive) -> str | None:
    found = [name for name in archive.names if name.rpartition("/")[2] == "data.pkl"]
    return min(found, key=len) if found else None


class TorchFile:
    """An open file of ``torch.save``.

    Attributes
    ----------
    value : object
        What was saved: containers of plain values and of references to tensors.
    """

    def __init__(self, archive: Archive, extra: Allowed | None = None) -> None:
        self.label = archive.label
        self._archive = archive
        name = _pickle_name(archive)
        if name is None:
            raise UnsupportedFormat("a zip archive without data.pkl", path=archive.label)
        self._prefix = name.removesuffix("data.pkl")
        if any(member.startswith(f"{self._prefix}code/") for member in archive.names):
            raise UnsupportedFormat(
                "a TorchScript program, which is code; save its state_dict() with torch.save",
                path=self.label,
            )
        if f"{self._prefix}byteorder" in archive.names:
            order = self._open(f"{self._prefix}byteorder")
            if order.read(0, min(order.size, 6)).tobytes() != b"little":
                raise UnsupportedFormat(
                    "it was written on a big-endian machine; load and save it on this one",
                    path=self.label,
                )
        pickle = self._open(name)
        within_limit(pickle.size, f"the pickle inside {self.label}")
        self._storages: dict[str, Source] = {}
        self.value: Any = load(
            pickle.read(0, pickle.size).tobytes(),
            {**ALLOWED, **(extra or {})},
            self.label,
            storage,
        )

    def stored(self, ref: TensorRef) -> Strided:
        """The tensor a reference stands for.

        Raises
        ------
        DamagedData
            Where its storage is missing or too short.
        """
        key = ref.storage.key
        if key not in self._storages:
            name = f"{self._prefix}data/{key}"
            if name not in self._archive.names:
                raise DamagedData(f"the storage {name!r} is missing", path=self.label)
            self._storages[key] = self._open(name)
        elements = Stored(self._storages[key], ref.dtype)
        return Strided(elements, ref.shape, ref.strides, ref.offset)

    def _open(self, name: str) -> Source:
        return self._archive.open(name)


def add(contents: Contents, name: str, leaf: Any, file: TorchFile) -> None:
    """Sort one leaf of a file's value in."""
    leaf = resolved(leaf)
    if isinstance(leaf, TensorRef):
        try:
            contents.put(name, file.stored(leaf))
        except ReprolabError as error:
            raise error.at(tensor=name, path=file.label) from error.__cause__
    elif isinstance(leaf, NotDense):
        contents.unsupported[name] = leaf.reason
    elif isinstance(leaf, ArrayRef):
        dtype = from_numpy(leaf.array.dtype)
        if dtype is None:
            contents.unsupported[name] = f"its dtype is {leaf.array.dtype}"
        else:
            contents.put(name, InMemory(leaf.array, dtype))
    else:
        contents.metadata[name] = plain(leaf)


def add_all(contents: Contents, file: TorchFile, value: Any = ..., prefix: str = "") -> None:
    """Sort everything nested in a file's value, or in a part of it, in under dotted names."""
    for name, leaf in leaves(file.value if value is ... else value, file.label):
        add(contents, joined(prefix, name) or "tensor", leaf, file)


def open_archive(archive: Archive, source: Source, path: str) -> CheckpointFile:
    """Open a file of ``torch.save``."""
    try:
        file = TorchFile(archive)
    except RefusedPickle as error:
        if "asks for horovod" in error.message:
            raise UnsupportedFormat(
                "it holds objects of Horovod, which only Horovod can rebuild; in the training, "
                "save model.state_dict() and optimizer.state_dict() with torch.save instead",
                path=path,
            ) from error
        raise
    contents = Contents(source.label)
    add_all(contents, file)
    return CheckpointFile(
        path,
        "torch",
        contents.tensors,
        unsupported=contents.unsupported,
        metadata=contents.metadata,
        close=source.close,
    )
