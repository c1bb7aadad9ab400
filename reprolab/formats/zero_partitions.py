"""The flat partitions that DeepSpeed's optimizer files hold, and which parameter lies where.

ZeRO 1 and 2 lay the parameters of a group end to end and cut the whole into one partition a rank.
ZeRO 3 cuts each parameter into one part a rank and lays the parts of one rank end to end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from reprolab.errors import DamagedData, ReprolabError, UnsupportedFormat
from reprolab.formats.archives import Archive
from reprolab.formats.elements import Elements, Joined, Slice
from reprolab.formats.folders import Folder
from reprolab.formats.pickles import Maker, stand_in
from reprolab.formats.sources import Source
from reprolab.formats.torch_files import TorchFile
from reprolab.formats.torch_objects import TensorRef

_OPTIMIZER = re.compile(r"((?:bf16_|fp16_)?zero_pp_rank_)(\d+)(_mp_rank_(\d+)_optim_states\.pt)")

_NAMES: dict[tuple[str, str], Any] = {
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"): Maker(int),
    ("deepspeed.utils.tensor_fragment", "fragment_address"): stand_in(
        "deepspeed.utils.tensor_fragment", "fragment_address"
    ),
    **{
        ("deepspeed.runtime.fp16.loss_scaler", name): stand_in(
            "deepspeed.runtime.fp16.loss_scaler", name
        )
        for name in ("LossScaler", "DynamicLossScaler", "LossScalerBase")
    },
}


class Files:
    """The open files of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._sources: list[Source] = []

    def open(self, name: str) -> TorchFile:
        """A file of ``torch.save`` that may name DeepSpeed's own classes."""
        source = self._folder.open(name)
        self._sources.append(source)
        return TorchFile(Archive(source), _NAMES)

    def close(self) -> None:
        """Close the files."""
        for source in self._sources:
            source.close()


@dataclass(frozen=True, slots=True)
class Partitions:
    """What the optimizer files of one model rank say."""

    stage: int
    flat: list[list[Elements]]
    """[data-parallel rank][group]"""
    states: dict[str, list[list[Elements]]]
    """The same for each optimizer state of the partitions' size."""
    gaps: list[list[int]]
    """Elements of padding after each parameter, for each group; empty where there is none."""
    settings: Any
    """The optimizer's parameter groups."""


def read_partitions(rank: int, names: list[str], files: Files) -> Partitions:
    """The partitions of one model rank, from the optimizer files of all data-parallel ranks.

    Raises
    ------
    DamagedData
        Where a rank's file is missing; it is named.
    """
    """The partitions of one model rank, from the optimizer files of all data-parallel ranks.

    Raises
    ------
    DamagedData
        Where a rank's file is missing; it is named.
    """
    found = {
        int(match[2]): match
        for name in names
        if (match := _OPTIMIZER.fullmatch(name)) and int(match[4]) == rank
    }
    if not found:
        raise DamagedData(f"the optimizer files of mp_rank_{rank:02} are missing; copy them too")
    opened = {index: files.open(match[0]) for index, match in sorted(found.items())}
    tops = {index: file.value["optimizer_state_dict"] for index, file in opened.items()}
    any_rank = next(iter(tops))
    counts = tops[any_rank]["partition_count"]
    world = max(counts) if isinstance(counts, list) else counts
    if "ds_zero_partition_groups" in tops[any_rank]:
        raise UnsupportedFormat("a DeepSpeed checkpoint whose experts are partitioned on their own")
    match = found[any_rank]
    for index in range(world):
        if index not in found:
            raise DamagedData(
                f"the file '{match[1]}{index}{match[3]}' is missing, of {world} ranks; copy it too"
            )
    ranks = range(world)
    # The optimizer for bfloat16 writes no stage; its partitions are those of stage 1.
    stage = int(tops[any_rank].get("zero_stage", 1))
    key = "fp32_flat_groups" if stage >= 3 else "single_partition_of_fp32_groups"
    flat = [[flat_elements(opened[r], part) for part in tops[r][key]] for r in ranks]
    states = [_states(opened[r], tops[r]) for r in ranks]
    shared = [
        name for name in states[0] if all(len(of.get(name, ())) == len(flat[0]) for of in states)
    ]
    gaps = [list(map(int, group)) for group in tops[any_rank].get("param_alignment_paddings") or ()]
    return Partitions(
        stage,
        flat,
        {name: [of[name] for of in states] for name in shared},
        gaps,
        _base(tops[any_rank]).get("param_groups"),
    )


def flat_elements(file: TorchFile, ref: Any) -> Elements:
    """The elements of a flat tensor of a file."""
    if not isinstance(ref, TensorRef) or len(ref.shape) != 1:
        raise TypeError("a partition that is not a flat tensor")
    return file.stored(ref).flat()


def _base(top: dict[str, Any]) -> dict[str, Any]:
    """The state of the optimizer that DeepSpeed wraps; elastic checkpoints hold only the groups."""
    base = top.get("base_optimizer_state") or top.get("optimizer_state_dict") or []
    return base if isinstance(base, dict) and "state" in base else {"state": base}


def _states(file: TorchFile, top: dict[str, Any]) -> dict[str, list[Elements]]:
    """Flat optimizer states by name, one for each group."""
    base = _base(top)
    groups = base["state"]
    each = groups.values() if isinstance(groups, dict) else groups
    found: dict[str, list[Elements]] = {}
    for state in each:
        for name, value in state.items():
            if isinstance(value, TensorRef) and len(value.shape) == 1:
                found.setdefault(name, []).append(flat_elements(file, value))
    return found


Placed = Iterator[tuple[str, tuple[int, ...], Elements]]
"""Name, shape and elements of each parameter."""


def place_groups(
    shapes: list[dict[str, Any]], flat: list[list[Elements]], gaps: list[list[int]]
) -> Placed:
    """Where ZeRO 1 and 2 put parameters."""
    align = 2 * len(flat)
    for group, members in enumerate(shapes):
        whole = Joined([parts[group] for parts in flat])
        start = 0
        for index, (name, shape) in enumerate(members.items()):
            stop = start + prod(shape)
            yield name, tuple(shape), _slice(name, whole, start, stop)
            start = stop + (gaps[group][index] if gaps else 0)
        # The end is padded to a multiple of twice the ranks, and some versions strip that again.
        if -(-start // align) != -(-whole.size // align):
            raise DamagedData(
                f"the parameters of group {group} have {start} elements and its partitions "
                f"{whole.size}; the files do not belong together"
            )


def place_parts(
    shapes: list[dict[str, Any]], flat: list[list[Elements]], gaps: list[list[int]]
) -> Placed:
    """Where ZeRO 3 puts parameters."""
    ranks = [Joined(parts) for parts in flat]
    start = 0
    for members in shapes:
        for name, shape in members.items():
            stop = start + -(-prod(shape) // len(ranks))
            parts = Joined([_slice(name, rank, start, stop) for rank in ranks])
            yield name, tuple(shape), Slice(parts, 0, prod(shape))
            start = stop
    if any(rank.size != start for rank in ranks):
        raise DamagedData(
            f"the parameters have {start} elements a rank and the partitions "
            f"{[rank.size for rank in ranks]}; the files do not belong together"
        )


def _slice(name: str, whole: Elements, start: int, stop: int) -> Elements:
    try:
        return Slice(whole, start, stop)
    except ReprolabError as error:
        raise error.at(tensor=name) from None
