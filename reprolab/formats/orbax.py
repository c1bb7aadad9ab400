"""Folders of Orbax: Zarr arrays, one folder each or together in an OCDBT database."""

from __future__ import annotations

import os
import re
from typing import Any

from reprolab.errors import DamagedData, MissingLibrary, UnsupportedFormat
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.folders import Folder, KeyedFolder, LocalFolder
from reprolab.formats.memory import within_limit
from reprolab.formats.nesting import joined
from reprolab.formats.sources import Held
from reprolab.formats.zarr_arrays import ChunkCache
from reprolab.formats.zarr_groups import add_arrays, is_zarr
from reprolab.formats.zarr_metadata import parse

_TREE = "_METADATA"
_STEP = "_CHECKPOINT_METADATA"
_DATABASE = "manifest.ocdbt"
_opened_in: dict[str, int] = {}
_UNFINISHED = re.compile(r".*\.orbax-checkpoint-tmp.*")


def is_orbax(folder: Folder) -> bool:
    """Whether a folder is a checkpoint of Orbax, or the steps of a manager."""
    folders, files = folder.listing()
    if {_TREE, _STEP, _DATABASE} & set(files):
        return True
    return bool(folders) and any(
        name.isdecimal() and folder.has(f"{name}/{_STEP}") for name in folders
    )


def open_folder(folder: Folder, path: str) -> CheckpointFile:
    """Open a checkpoint of Orbax, with all its items that hold arrays.

    Raises
    ------
    MissingLibrary
        Where it is an OCDBT database and tensorstore is not installed.
    DamagedData
        Where an array is missing; it is named.
    """
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    if _UNFINISHED.fullmatch(name):
        raise DamagedData("Orbax did not finish writing this checkpoint", path=path)
    folders, files = folder.listing()
    contents = Contents(path)
    cache = ChunkCache()
    if {_TREE, _DATABASE} & set(files) or any(is_zarr(folder.child(item)) for item in folders):
        _add_item(folder, "", cache, contents)
    elif _STEP in files:
        items = [item for item in folders if _holds_arrays(folder.child(item))]
        for item in items:
            _add_item(folder.child(item), item if len(items) > 1 else "", cache, contents)
    else:
        steps = sorted((item for item in folders if item.isdecimal()), key=int)
        raise UnsupportedFormat(
            f"the folder holds the steps {', '.join(steps)}; open one of them, such as "
            f"{path.rstrip('/')}/{steps[-1]}",
            path=path,
        )
    return CheckpointFile(
        path,
        "orbax",
        contents.tensors,
        unsupported=contents.unsupported,
        metadata=contents.metadata,
    )


def _holds_arrays(folder: Folder) -> bool:
    return bool({_TREE, _DATABASE} & set(folder.listing()[1]))


def _add_item(folder: Folder, prefix: str, cache: ChunkCache, contents: Contents) -> None:
    expected = _expected(folder)
    place = _database(folder) if folder.has(_DATABASE) else folder
    for name in place.listing()[0]:
        child = place.child(name)
        if is_zarr(child):
            add_arrays(child, joined(prefix, name), cache, contents)
    for name in (joined(prefix, name) for name in expected):
        if name not in contents.tensors and name not in contents.unsupported:
            raise DamagedData(
                "the tree's metadata lists it, and no such array is stored; the checkpoint is "
                "incomplete: copy all its files again",
                path=folder.label,
                tensor=name,
            )


def _expected(folder: Folder) -> list[str]:
    """Names of the arrays that the tree's metadata lists."""
    source = folder.find(_TREE)
    if source is None:
        return []
    within_limit(source.size, _TREE)
    document = parse(source.read(0, source.size).tobytes(), source.label)
    source.close()
    try:
        return [
            ".".join(str(key["key"]) for key in leaf["key_metadata"])
            for leaf in document.get("tree_metadata", {}).values()
            if not leaf["value_metadata"].get("skip_deserialize")
            and leaf["value_metadata"].get("value_type") != "string"
        ]
    except (KeyError, TypeError, AttributeError) as reason:
        raise DamagedData(f"{_TREE} makes no sense: {reason}", path=folder.label) from reason


def _database(folder: Folder) -> KeyedFolder:
    """The keys of an OCDBT database as names of files."""
    try:
        import tensorstore
    except ImportError as reason:
        raise MissingLibrary(
            'Orbax\'s OCDBT databases need tensorstore; install "reprolab[formats]"',
            path=folder.label,
        ) from reason
    if not isinstance(folder, LocalFolder):
        raise UnsupportedFormat(
            "an OCDBT database behind a URL; copy the folder to this machine and open it there",
            path=folder.label,
        )
    if _opened_in.setdefault("process", os.getpid()) != os.getpid():
        # Its threads did not survive the fork, and waiting for them never ends.
        raise UnsupportedFormat(
            "tensorstore was used before this process was forked; start worker processes with "
            'multiprocessing.get_context("spawn")',
            path=folder.label,
        )
    spec = {
        "driver": "ocdbt",
        "base": {"driver": "file", "path": f"{folder.path.resolve()}/"},
    }
    try:
        store = tensorstore.KvStore.open(spec).result()
        names = [key.decode() for key in store.list().result()]
    except ValueError as reason:
        raise DamagedData(
            f"the OCDBT database cannot be read: {reason}", path=folder.label
        ) from reason

    def value(name: str) -> Any:
        try:
            found = store.read(name).result()
        except ValueError as reason:
            raise DamagedData(f"{name} cannot be read: {reason}", path=folder.label) from reason
        return Held(found.value, f"{folder.label}:{name}")

    return KeyedFolder(folder.label, names, value)
