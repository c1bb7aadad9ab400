"""Folders of ``torch.distributed.checkpoint``: a ``.metadata`` pickle and files of items.

``.metadata`` says which boxes each tensor is made of and where each box lies as one item of a
``.distcp`` file, an archive of ``torch.save`` within it. Both are read as data.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from reprolab.errors import DamagedData, RefusedPickle, ReprolabError
from reprolab.formats.archives import Archive
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.folders import Folder
from reprolab.formats.memory import within_limit
from reprolab.formats.pickles import Record, load, stand_in
from reprolab.formats.safetensors_files import is_safetensors, read_header, tensors_of
from reprolab.formats.sources import Part, Source
from reprolab.formats.tensors import Mosaic, StoredTensor
from reprolab.formats.torch_files import TorchFile, add_all
from reprolab.formats.torch_objects import ALLOWED, Dtype, TensorRef
from reprolab.vocabulary import ITEMSIZE, Region

METADATA = ".metadata"

_MODULE = "torch.distributed.checkpoint.metadata"
_SMALL_ITEM = 1 << 20
"""Items that are not tensors are read on opening when they are at most this long, in bytes."""

_NAMES: dict[tuple[str, str], Any] = {
    (module, name): stand_in(module, name)
    for module, name in (
        (_MODULE, "Metadata"),
        (_MODULE, "MetadataIndex"),
        (_MODULE, "TensorStorageMetadata"),
        (_MODULE, "BytesStorageMetadata"),
        (_MODULE, "ChunkStorageMetadata"),
        (_MODULE, "TensorProperties"),
        (_MODULE, "StorageMeta"),
        (_MODULE, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.distributed.checkpoint.filesystem", "_StoragePrefix"),
        ("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"),
        ("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"),
        ("megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"),
    )
}
_CONTAINERS = {
    key: ALLOWED[key]
    for key in (
        ("collections", "OrderedDict"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        *(("pathlib", name) for name in ("PosixPath", "PurePosixPath", "WindowsPath")),
        *(key for key, value in ALLOWED.items() if isinstance(value, Dtype)),
    )
}


def is_dcp(folder: Folder) -> bool:
    """Whether a folder holds a checkpoint of ``torch.distributed.checkpoint``."""
    return folder.has(METADATA)


def open_folder(folder: Folder, path: str) -> CheckpointFile:
    """Open a folder of ``torch.distributed.checkpoint``.

    Raises
    ------
    RefusedPickle
        Where ``.metadata`` asks for anything else than metadata.
    DamagedData
        Where an item or file is missing; it is named.
    """
    source = folder.open(METADATA)
    within_limit(source.size, METADATA)
    top = load(source.read(0, source.size).tobytes(), {**_CONTAINERS, **_NAMES}, source.label)
    source.close()
    items = _Items(folder)
    contents = Contents(folder.label)
    try:
        stored = {(index.get("fqn"), _numbers(index.get("offset"))): info
                  for index, info in top.get("storage_data").items()}  # fmt: skip
        for name, entry in top.get("state_dict_metadata").items():
            _add(name, entry, stored, items, contents)
    except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as reason:
        raise DamagedData(
            f"the metadata makes no sense ({type(reason).__name__}: {reason})", path=source.label
        ) from reason
    return CheckpointFile(
        path,
        "dcp",
        contents.tensors,
        unsupported=contents.unsupported,
        metadata=contents.metadata,
        close=items.close,
    )


def _numbers(value: Any) -> tuple[int, ...]:
    return () if value is None else tuple(int(number) for number in value)


def _add(name: Any, entry: Record, stored: Any, items: _Items, contents: Contents) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a tensor named {name!r}")
    try:
        if entry.kind == f"{_MODULE}.BytesStorageMetadata":
            items.describe(name, stored[name, ()], contents)
            return
        dtype = entry.get("properties").state[0].name
        shape = _numbers(entry.get("size"))
        if dtype not in ITEMSIZE:
            contents.unsupported[name] = f"its dtype is {dtype}, which has no fingerprint"
            return
        pieces: list[tuple[Region, StoredTensor]] = []
        for chunk in entry.get("chunks"):
            offset, extent = _numbers(chunk.get("offsets")), _numbers(chunk.get("sizes"))
            if not prod(extent):
                continue
            key = (name, offset)
            if key not in stored:
                raise DamagedData(f"the metadata says nowhere where the box at {offset} lies")
            info = stored[key]
            if info.get("transform_descriptors"):
                contents.unsupported[name] = (
                    "it is stored through an extension, such as compression"
                )
                return
            item = _Item(items, info, name, dtype, extent)
            pieces.append((Region(offset, extent), item))
        contents.put(name, Mosaic(dtype, shape, pieces))
    except ReprolabError as error:
        raise error.at(tensor=name, path=contents.label) from error.__cause__


class _Items:
    """Items of a folder's files, each file opened once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files: dict[str, Source] = {}
        self._names = frozenset(folder.listing()[1])

    def file(self, info: Record) -> Source:
        """The file that an item is in."""
        name = info.get("relative_path")
        if name not in self._files:
            self._files[name] = self._folder.open(name)
        return self._files[name]

    def open(self, info: Record) -> Source:
        """The bytes of one item."""
        file, offset, length = self.file(info), info.get("offset"), info.get("length")
        return Part(file, offset, length, f"{file.label} at {offset}")

    def check(self, info: Record) -> None:
        """Refuse a missing file on opening rather than hours into reading."""
        name = info.get("relative_path")
        if "/" in name or name not in self._names:
            self.open(info)

    def describe(self, name: str, info: Record, contents: Contents) -> None:
        """Add an item that is no tensor to the metadata."""
        if info.get("transform_descriptors"):
            contents.metadata[name] = "<stored through an extension>"
            return
        source = self.open(info)
        if source.size > _SMALL_ITEM:
            contents.metadata[name] = f"<{source.size} bytes>"
            return
        try:
            file = TorchFile(Archive(source))
        except RefusedPickle as error:
            if "asks for" not in error.message:
                raise
            # An object beside the tensors, such as a data loader's state: named, never rebuilt.
            contents.metadata[name] = f"<not read: {error.message.partition(',')[0]}>"
            return
        except DamagedData:
            contents.metadata[name] = f"<{source.size} bytes>"
            return
        add_all(contents, file, prefix=name)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class _Item:
    """One box of a tensor, opened when it is first read."""

    def __init__(
        self, items: _Items, info: Record, name: str, dtype: str, shape: tuple[int, ...]
    ) -> None:
        items.check(info)
        self.dtype = dtype
        self.shape = shape
        self._name = name
        self._open: Callable[[], Source] = lambda: items.open(info)
        self._file: Callable[[], Source] = lambda: items.file(info)
        self._tensor: StoredTensor | None = None

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box within this box."""
        if self._tensor is None:
            self._tensor = self._find()
        return self._tensor.read(region)

    def _find(self) -> StoredTensor:
        source = self._file()
        tensor: StoredTensor | None
        if is_safetensors(source):
            # With SerializationFormat.SAFETENSORS a file is one such, whatever the offsets say.
            tensor = tensors_of(source, read_header(source))[0].get(self._name)
        else:
            source = self._open()
            file = TorchFile(Archive(source))
            tensor = file.stored(file.value) if isinstance(file.value, TensorRef) else None
        if tensor is None:
            raise DamagedData("the item is no tensor", path=source.label)
        if (tensor.dtype, tensor.shape) != (self.dtype, self.shape):
            raise DamagedData(
                f"the metadata says {self.dtype} {self.shape}; the item is "
                f"{tensor.dtype} {tensor.shape}",
                path=source.label,
            )
        return tensor
