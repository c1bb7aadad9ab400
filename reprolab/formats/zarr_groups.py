"""Zarr groups of either version, in a folder, in a zip archive or behind a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reprolab.errors import DamagedData
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.folders import Folder
from reprolab.formats.memory import within_limit
from reprolab.formats.nesting import joined, leaves, plain
from reprolab.formats.zarr_arrays import ChunkCache, ZarrArray
from reprolab.formats.zarr_metadata import Unreadable, describe, parse

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
_DEEPEST = 100


def is_zarr(folder: Folder) -> bool:
    """Whether a folder is a Zarr group or array."""
    return any(folder.has(name) for name in DOCUMENTS)


def open_folder(
    folder: Folder, path: str, close: Callable[[], None] | None = None
) -> CheckpointFile:
    """Open a Zarr group, and all groups within; a lone array is a checkpoint of one tensor."""
    contents = Contents(path)
    add_arrays(folder, "", ChunkCache(), contents)
    return CheckpointFile(
        path,
        "zarr",
        contents.tensors,
        unsupported=contents.unsupported,
        metadata=contents.metadata,
        close=close,
    )


def add_arrays(folder: Folder, prefix: str, cache: ChunkCache, contents: Contents) -> None:
    """Add every array in and below a folder, and the attributes of its groups."""
    for name, place, document in _walk(folder, prefix, 0):
        if document.get("node_type", "array") == "group":
            for key, leaf in leaves(document.get("attributes") or {}, place.label):
                contents.metadata[joined(name, key)] = plain(leaf)
            continue
        name = name or "tensor"
        try:
            contents.put(name, ZarrArray(place, describe(document, place.label), cache))
        except Unreadable as why:
            contents.unsupported[name] = why.reason
        except DamagedData as error:
            raise error.at(tensor=name) from error.__cause__


def _walk(folder: Folder, name: str, depth: int) -> Iterator[tuple[str, Folder, dict[str, Any]]]:
    if depth > _DEEPEST:
        raise DamagedData(f"groups are nested more than {_DEEPEST} deep", path=folder.label)
    document = _document(folder)
    if document is None:
        return
    yield name, folder, document
    if document.get("node_type") == "array" or "shape" in document:
        return
    for below in folder.listing()[0]:
        yield from _walk(folder.child(below), joined(name, below), depth + 1)


def _document(folder: Folder) -> dict[str, Any] | None:
    for name in DOCUMENTS:
        if folder.has(name):
            source = folder.open(name)
            within_limit(source.size, f"{name} of {folder.label}")
            found = parse(source.read(0, source.size).tobytes(), source.label)
            source.close()
            version = 3 if name == "zarr.json" else 2
            if found.get("zarr_format") != version:
                raise DamagedData(
                    f"{name} must say zarr_format {version}; got {found.get('zarr_format')!r}",
                    path=folder.label,
                )
            if name == ".zgroup":
                found |= {"node_type": "group", "attributes": _attributes(folder)}
            return found
    return None


def _attributes(folder: Folder) -> dict[str, Any]:
    source = folder.find(".zattrs")
    if source is None:
        return {}
    within_limit(source.size, f".zattrs of {folder.label}")
    found = parse(source.read(0, source.size).tobytes(), source.label)
    source.close()
    return found
