"""What is recognised and refused by name, with what to do instead."""

from __future__ import annotations

import re

from reprolab.errors import UnsupportedFormat
from reprolab.formats.archives import Archive
from reprolab.formats.folders import Folder
from reprolab.formats.sources import Source
from reprolab.formats.torch_files import LEGACY

SUPPORTED = (
    "reprolab checkpoints, Zarr v2 and v3, safetensors (also sharded), torch.save files, "
    "torch.distributed.checkpoint, DeepSpeed ZeRO, Orbax, NumPy .npz"
)

_TORCH = "load it with torch.load(path, weights_only=True) and torch.save it again"

_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, LEGACY, "a file of torch before 1.6", _TORCH),
    (257, b"ustar", "a tar archive, as torch wrote before 0.4", _TORCH),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5, as Keras writes", "save the weights with numpy.savez"),
    (0, b"GGUF", "GGUF, whose weights are quantized", "open the checkpoint it was made from"),
    (0, b"\x93NUMPY", "a single NumPy array", "save it with numpy.savez"),
    (0, b"\x1f\x8b", "a gzip file", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
)

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_TENSORFLOW = (
    "a TensorFlow checkpoint; in TensorFlow, tf.train.load_checkpoint(path) reads each variable, "
    "and numpy.savez saves them"
)
_HOROVOD = (
    "a Horovod store; what it holds under runs/*/checkpoint* are files of torch or Keras: open "
    "such a file by its own path"
)


def explain_file(source: Source, path: str) -> UnsupportedFormat:
    """Why a file cannot be opened."""
    start = source.read(0, min(source.size, 512)).tobytes()
    for offset, magic, what, advice in _MAGIC:
        if start[offset : offset + len(magic)] == magic:
            return UnsupportedFormat(f"this is {what}; {advice}", path=path)
    if not source.size:
        return UnsupportedFormat("the file is empty", path=path)
    if _PICKLE.match(start):
        return UnsupportedFormat(
            "this is a bare pickle, which could run code; it was not loaded. Save the tensors with "
            "numpy.savez, torch.save or safetensors",
            path=path,
        )
    # TensorFlow's index is a table whose magic number stands at the end.
    if source.size >= 48:
        end = source.read(source.size - 8, 8).tobytes()
        if end == b"\x57\xfb\x80\x8b\x24\x75\x47\xdb":
            return UnsupportedFormat(f"this is {_TENSORFLOW}", path=path)
    return UnsupportedFormat(
        f"a file of no known format, beginning with {start[:16].hex(' ')}; "
        f"supported are {SUPPORTED}",
        path=path,
    )


def explain_archive(archive: Archive, path: str) -> UnsupportedFormat:
    """Why a zip archive cannot be opened."""
    names = archive.names
    if "model.weights.h5" in names:
        return UnsupportedFormat(
            "this is a Keras archive; save the weights with numpy.savez", path=path
        )
    few = ", ".join(names[:5]) or "nothing"
    return UnsupportedFormat(
        f"a zip archive of no known format, holding {few}; supported are {SUPPORTED}", path=path
    )


def explain_folder(folder: Folder, path: str) -> UnsupportedFormat:
    """Why a folder cannot be opened."""
    folders, files = folder.listing()
    parts = re.compile(r".*\.data-\d{5}-of-\d{5}")
    if "saved_model.pb" in files or any(parts.fullmatch(name) for name in files):
        return UnsupportedFormat(f"this is {_TENSORFLOW}", path=path)
    if {"runs", "intermediate_train_data"} <= set(folders):
        return UnsupportedFormat(f"this is {_HOROVOD}", path=path)
    seen = ", ".join([*(f"{name}/" for name in folders[:5]), *files[:5]]) or "nothing"
    return UnsupportedFormat(
        f"a folder of no known format, holding {seen}; supported are {SUPPORTED}", path=path
    )
