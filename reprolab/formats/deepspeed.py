"""Folders of DeepSpeed: flat partitions of ZeRO 1 to 3 put together into parameters.

Model files hold names and shapes (``param_shapes``, in the order of the flat buffers), buffers and
frozen parameters; optimizer files hold each data-parallel rank's flat fp32 partitions. Parameters
are given as the fp32 masters, optimizer states as ``optimizer.state.<parameter>.<state>``.
DeepSpeed itself is not needed.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from reprolab.errors import DamagedData, UnsupportedFormat
from reprolab.formats.checkpoint import CheckpointFile
from reprolab.formats.contents import Contents
from reprolab.formats.elements import Joined, Slice, Strided
from reprolab.formats.folders import Folder, inside, missing
from reprolab.formats.nesting import joined, leaves, plain
from reprolab.formats.torch_files import TorchFile, add, add_all
from reprolab.formats.torch_objects import NotDense, TensorRef
from reprolab.formats.zero_partitions import (
    Files,
    Partitions,
    flat_elements,
    place_groups,
    place_parts,
    read_partitions,
)

_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_OTHER = re.compile(
    r"layer_\d+.*model.*states\.pt|expp_rank_.*_optim_states\.pt|layer_\d+-model_.*"
)


def tag_folder(folder: Folder) -> Folder | None:
    """The folder of one step, where this is a DeepSpeed checkpoint or holds one under a tag."""
    folders, files = folder.listing()
    if any(_MODEL.fullmatch(name) for name in files):
        return folder
    if "latest" in files:
        source = folder.open("latest")
        tag = source.read(0, min(source.size, 4096)).tobytes().decode("utf-8", "replace").strip()
        source.close()
        if not tag or "/" in tag:
            return None
        step = folder.child(inside(tag, folder.label))
        if tag not in folders:
            raise missing(tag, folder.label)
        return step if any(_MODEL.fullmatch(name) for name in step.listing()[1]) else None
    return None


def open_folder(folder: Folder, path: str) -> CheckpointFile:
    """Open the folder of one step.

    Raises
    ------
    UnsupportedFormat
        For pipeline or expert parallelism and for universal checkpoints.
    DamagedData
        Where a rank's file is missing; it is named.
    """
    folders, names = folder.listing()
    other = [name for name in names if _OTHER.fullmatch(name)]
    if other or "zero" in folders:
        raise UnsupportedFormat(
            f"a DeepSpeed checkpoint with {other[0] if other else 'zero/'}, of pipeline or expert "
            "parallelism or in universal form; gather it with zero_to_fp32.py, which lies beside "
            "it, and open the result",
            path=path,
        )
    files = Files(folder)
    contents = Contents(folder.label)
    ranks = sorted({int(match[2]) for name in names if (match := _MODEL.fullmatch(name))})
    try:
        for rank in ranks:
            prefix = f"mp_rank_{rank:02}" if len(ranks) > 1 else ""
            _add_model_rank(rank, prefix, names, files, contents)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as reason:
        raise DamagedData(
            f"its files make no sense as DeepSpeed's ({type(reason).__name__}: {reason})",
            path=path,
        ) from reason
    return CheckpointFile(
        path,
        "deepspeed",
        contents.tensors,
        unsupported=contents.unsupported,
        metadata=contents.metadata,
        close=files.close,
    )


def _add_model_rank(
    rank: int, prefix: str, names: list[str], files: Files, contents: Contents
) -> None:
    matches = [match for name in names if (match := _MODEL.fullmatch(name))]
    mine = sorted(
        (match for match in matches if int(match[2]) == rank), key=lambda m: int(m[1] or 0)
    )
    models = [files.open(match[0]) for match in mine]
    first = models[0].value
    shapes = first.get("param_shapes")
    buffers = list(first.get("buffer_names") or ())
    if not shapes:
        add_all(contents, models[0], first["module"], prefix)
        add_all(contents, models[0], {"optimizer": first.get("optimizer")}, prefix)
    else:
        parts = read_partitions(rank, names, files)
        if parts.stage >= 3 and len(mine) != len(parts.flat):
            raise DamagedData(
                f"{len(parts.flat)} ranks wrote optimizer files and {len(mine)} model files are "
                f"here; the highest found is {mine[-1][0]}",
                path=contents.label,
            )
        _add_parameters(prefix, shapes, parts, contents)
        for name, leaf in leaves(parts.settings, contents.label):
            contents.metadata[joined(prefix, "optimizer.param_groups", name)] = plain(leaf)
        for name in buffers:
            add(contents, joined(prefix, name), first["module"][name], models[0])
        _add_frozen(prefix, models, parts.stage, contents)
        _add_aliases(prefix, first.get("shared_params") or {}, contents)
    inside_tensors = ("module", "optimizer", "param_shapes", "frozen_param_fragments")
    rest = {key: value for key, value in first.items() if key not in inside_tensors}
    add_all(contents, models[0], rest, joined(prefix, "deepspeed"))


def _add_parameters(
    prefix: str, shapes: list[dict[str, Any]], parts: Partitions, contents: Contents
) -> None:
    place = place_parts if parts.stage >= 3 else place_groups
    for name, shape, elements in place(shapes, parts.flat, parts.gaps):
        contents.put(joined(prefix, name), Strided(elements, shape))
    for state, flat in parts.states.items():
        for name, shape, elements in place(shapes, flat, parts.gaps):
            label = joined(prefix, "optimizer.state", name, state)
            contents.put(label, Strided(elements, shape))


def _add_aliases(prefix: str, shared: dict[str, str], contents: Contents) -> None:
    for alias, name in shared.items():
        tensor = contents.tensors.get(joined(prefix, name))
        if tensor is not None and joined(prefix, alias) not in contents.tensors:
            contents.put(joined(prefix, alias), tensor)


def _add_frozen(prefix: str, models: list[TorchFile], stage: int, contents: Contents) -> None:
    first = models[0].value
    shapes = first.get("frozen_param_shapes") or {}
    for name, shape in shapes.items():
        refs = [model.value["frozen_param_fragments"][name] for model in models]
        if stage < 3:
            add(contents, joined(prefix, name), refs[0], models[0])
            continue
        parts = Joined([flat_elements(model, ref) for model, ref in zip(models, refs, strict=True)])
        contents.put(joined(prefix, name), Strided(Slice(parts, 0, prod(shape)), tuple(shape)))
    if stage >= 3:
        return
    shared = first.get("shared_params") or {}
    for name, ref in first["module"].items():
        known = joined(prefix, name) in contents.tensors or name in shared
        if not known and isinstance(ref, (TensorRef, NotDense)):
            add(contents, joined(prefix, name), ref, models[0])
