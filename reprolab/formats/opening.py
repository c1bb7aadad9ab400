"""``open_checkpoint``: looks at what is there and opens it."""

from __future__ import annotations

import os
from pathlib import Path

from reprolab.errors import ReprolabError
from reprolab.formats import (
    dcp,
    deepspeed,
    npz_files,
    orbax,
    recorded,
    safetensors_files,
    shards,
    strangers,
    torch_files,
    zarr_groups,
)
from reprolab.formats.archives import Archive, is_zip
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.folders import URL, Folder, KeyedFolder, LocalFolder, locate
from reprolab.formats.sources import Source

_HEADS = (dcp.METADATA, *zarr_groups.DOCUMENTS)
"""Files that stand for the folder they are in."""


def open_checkpoint(path: str | os.PathLike[str]) -> CheckpointFile:
    """Open a checkpoint that any supported tool wrote.

    The format is found by content: safetensors (one file, or shards with their index), torch
    files, folders of ``torch.distributed.checkpoint``, DeepSpeed ZeRO 1 to 3, Orbax, Zarr groups of
    version 2 and 3 (folders or zip archives), NumPy ``.npz``, and reprolab's own checkpoints.
    Nothing in a file is ever run, and only headers are read.

    Parameters
    ----------
    path : str or path-like
        A file or folder (or the index within it), or a URL that fsspec understands.

    Returns
    -------
    CheckpointFile

    Raises
    ------
    CheckpointNotFound
        Where nothing is there.
    UnsupportedFormat
        Where it is no format that can be read; says what was seen and what to do.
    RefusedPickle
        Where it asks for objects that only running code would make.
    DamagedData
        Where it is incomplete or its header lies.
    MissingLibrary
        Where it needs a library that is not installed.
    """
    address = os.fspath(path)
    if not URL.match(address):
        # Workers with another working directory open it again by this path.
        address = str(Path(address).absolute())
    file, folder = locate(address)
    try:
        if file is None:
            assert folder is not None  # noqa: S101
            return _open_folder(folder, address)
        above, slash, name = address.rpartition("/")
        if name.endswith(".index.json") or name in _HEADS:
            file.close()
            return _open_beside(name, locate(above + slash)[1], address)
        return _open_file(file, address)
    except ReprolabError as error:
        raise error.at(path=address) from error.__cause__


def _open_beside(name: str, folder: Folder | None, path: str) -> CheckpointFile:
    """Open what a folder's index or head stands for."""
    assert folder is not None  # noqa: S101
    if name.endswith(".index.json"):
        return shards.open_indexed(folder, name, path)
    return _open_folder(folder, path)


def _open_file(source: Source, path: str) -> CheckpointFile:
    try:
        if is_zip(source):
            return _open_archive(Archive(source), source, path)
        named = path.endswith(".safetensors")
        if named or safetensors_files.is_safetensors(source):
            return safetensors_files.open_source(source, path)
        raise strangers.explain_file(source, path)
    except BaseException:
        source.close()
        raise


def _open_archive(archive: Archive, source: Source, path: str) -> CheckpointFile:
    if torch_files.is_torch(archive):
        return torch_files.open_archive(archive, source, path)
    if npz_files.is_npz(archive):
        return npz_files.open_archive(archive, source, path)
    folder = KeyedFolder(archive.label, archive.names, archive.open)
    if zarr_groups.is_zarr(folder):
        return zarr_groups.open_folder(folder, path, source.close)
    raise strangers.explain_archive(archive, path)


def _open_folder(folder: Folder, path: str) -> CheckpointFile:
    if isinstance(folder, LocalFolder):
        found = recorded.open_folder(folder.path, path)
        if found is not None:
            return found
    if orbax.is_orbax(folder):
        return orbax.open_folder(folder, path)
    if zarr_groups.is_zarr(folder):
        return zarr_groups.open_folder(folder, path)
    if dcp.is_dcp(folder):
        return dcp.open_folder(folder, path)
    step = deepspeed.tag_folder(folder)
    if step is not None:
        return deepspeed.open_folder(step, path)
    index = shards.index_of(folder)
    if index is not None:
        return shards.open_indexed(folder, index, path)
    if shards.safetensors_in(folder):
        return shards.open_folder(folder, path)
    raise strangers.explain_folder(folder, path)
