"""Folders of safetensors or torch files that are one checkpoint together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from reprolab.errors import DamagedData, UnsupportedFormat
from reprolab.formats.archives import Archive
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.folders import Folder, inside
from reprolab.formats.memory import within_limit
from reprolab.formats.safetensors_files import open_source, read_header, tensors_of
from reprolab.formats.sources import Source
from reprolab.formats.tensors import Mosaic, StoredTensor
from reprolab.formats.torch_files import open_archive
from reprolab.vocabulary import Region

_NUMBERED = re.compile(r"(.*?)-?(\d+)-of-(\d+)(.*)")
_SHARDING = "DCP_SHARDING_INFO"


def index_of(folder: Folder) -> str | None:
    """Name of the index of a folder of shards, if it has one."""
    _, files = folder.listing()
    found = [
        name for name in files if name.endswith((".safetensors.index.json", ".bin.index.json"))
    ]
    if len(found) > 1:
        raise UnsupportedFormat(
            f"the folder holds several indexed checkpoints; open one of {', '.join(found)}",
            path=folder.label,
        )
    return found[0] if found else None


def safetensors_in(folder: Folder) -> list[str]:
    """Names of the safetensors files directly in a folder."""
    return [name for name in folder.listing()[1] if name.endswith(".safetensors")]


def open_indexed(folder: Folder, index: str, path: str) -> CheckpointFile:
    """Open the shards that an index lists, such as ``model.safetensors.index.json``.

    Raises
    ------
    DamagedData
        Where a shard is missing or lacks a tensor; both are named.
    """
    source = folder.open(index)
    within_limit(source.size, f"the index {index}")
    try:
        content = json.loads(source.read(0, source.size).tobytes())
        where = {str(name): str(file) for name, file in content["weight_map"].items()}
        metadata = dict(content.get("metadata") or {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise DamagedData(
            f"the index makes no sense ({type(reason).__name__}: {reason})", path=source.label
        ) from reason
    finally:
        source.close()
    shards = {
        name: _open_shard(folder, inside(name, folder.label), path)
        for name in sorted(set(where.values()))
    }
    tensors: dict[str, StoredTensor] = {}
    unsupported: dict[str, str] = {}
    for name, file in where.items():
        shard = shards[file]
        if name in shard.tensors:
            tensors[name] = shard.tensors[name]
        elif name in shard.unsupported:
            unsupported[name] = shard.unsupported[name]
        else:
            raise DamagedData(
                f"the index says it is in {file}, which has no such tensor",
                path=folder.label,
                tensor=name,
            )
    kind = next(iter(shards.values())).format if shards else "safetensors"
    return CheckpointFile(
        path,
        kind,
        tensors,
        unsupported=unsupported,
        metadata=metadata,
        close=lambda: _close(shards.values()),
    )


def _open_shard(folder: Folder, name: str, path: str) -> CheckpointFile:
    source = folder.open(name)
    if name.endswith(".safetensors"):
        return open_source(source, path)
    return open_archive(Archive(source), source, path)


def _close(files: Iterable[CheckpointFile]) -> None:
    for file in files:
        file.close()


def open_folder(folder: Folder, path: str) -> CheckpointFile:
    """Open the safetensors files of a folder without an index.

    One file is one checkpoint; files numbered ``-00001-of-00002`` are one together, and so are
    those that ranks wrote with the place of each shard in their headers.
    """
    names = safetensors_in(folder)
    _check_numbers(names, folder.label)
    sources = [folder.open(name) for name in names]
    pieces: dict[str, list[tuple[tuple[int, ...], StoredTensor]]] = {}
    unsupported: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    for source in sources:
        header = read_header(source)
        offsets = _offsets(header.metadata, source)
        metadata.update({k: v for k, v in header.metadata.items() if k != _SHARDING})
        tensors, strangers = tensors_of(source, header)
        unsupported.update(strangers)
        for name, tensor in tensors.items():
            offset = offsets.get(name, (0,) * len(tensor.shape))
            if len(offset) != len(tensor.shape):
                raise DamagedData(
                    f"a shard of shape {tensor.shape} at {offset}", path=source.label, tensor=name
                )
            pieces.setdefault(name, []).append((offset, tensor))
            if not offsets and len(pieces[name]) > 1:
                raise DamagedData(
                    "two files hold a tensor of this name; open one of the files alone",
                    path=folder.label,
                    tensor=name,
                )
    return CheckpointFile(
        path,
        "safetensors",
        {name: _whole(name, parts, folder.label) for name, parts in pieces.items()},
        unsupported=unsupported,
        metadata=metadata,
        close=lambda: _close_all(sources),
    )


def _check_numbers(names: list[str], label: str) -> None:
    numbered = [_NUMBERED.fullmatch(name) for name in names]
    if len(names) > 1 and not all(numbered):
        raise UnsupportedFormat(
            f"the folder holds several safetensors files and no index; open one of them: "
            f"{', '.join(names)}",
            path=label,
        )
    for match in filter(None, numbered):
        before, digits, total, after = match.groups()
        for number in range(1, min(int(total), 100_000) + 1):
            name = f"{before}-{number:0{len(digits)}}-of-{total}{after}"
            if name not in names and "shard-" not in before:
                raise DamagedData(f"the shard {name!r} is missing; copy it too", path=label)


def _offsets(metadata: dict[str, Any], source: Source) -> dict[str, tuple[int, ...]]:
    if _SHARDING not in metadata:
        return {}
    try:
        content = json.loads(metadata[_SHARDING])
        return {name: tuple(map(int, entry["saved_offsets"])) for name, entry in content.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise DamagedData(
            f"its sharding information makes no sense ({reason})", path=source.label
        ) from reason


def _whole(
    name: str, parts: list[tuple[tuple[int, ...], StoredTensor]], label: str
) -> StoredTensor:
    if len(parts) == 1 and not any(parts[0][0]):
        return parts[0][1]
    reach = [
        tuple(a + n for a, n in zip(offset, tensor.shape, strict=True)) for offset, tensor in parts
    ]
    shape = tuple(max(ends) for ends in zip(*reach, strict=True))
    try:
        return Mosaic(
            parts[0][1].dtype,
            shape,
            [(Region(offset, tensor.shape), tensor) for offset, tensor in parts],
        )
    except DamagedData as error:
        raise error.at(tensor=name, path=label) from None


def _close_all(sources: Iterable[Source]) -> None:
    for source in sources:
        source.close()
