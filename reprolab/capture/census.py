"""The model as capture sees it: every parameter and buffer under the raw model's own name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from reprolab.errors import UnsupportedTraining

_SHARDED = {
    "DTensor": "a DTensor",
    "FlatParameter": "a flat parameter of FullyShardedDataParallel",
}


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside of DDP, DataParallel and ``torch.compile`` wrappers, however nested."""
    while (inner := _inside(module)) is not None:
        module = inner
    return module


def _inside(module: nn.Module) -> nn.Module | None:
    if isinstance(module, DistributedDataParallel | DataParallel):
        return module.module
    # Compared by name because importing torch._dynamo takes seconds that plain training never pays.
    if type(module).__name__ == "OptimizedModule":
        return module._modules["_orig_mod"]
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """All tensors of a model, in registration order, each once.

    Names are those of the raw model: what DDP and ``torch.compile`` put in front is left out, so
    that a run in one process and a run on many compare.
    """

    model: nn.Module
    """As the user passed it."""
    names: tuple[str, ...]
    """Names of the parameters."""
    parameters: tuple[nn.Parameter, ...]
    """The parameters themselves."""
    replicas: tuple[DistributedDataParallel | None, ...]
    """For each parameter the DDP wrapper around it, if it stands inside of one."""
    buffer_names: tuple[str, ...]
    """Names of the buffers."""
    _buffers: tuple[tuple[dict[str, torch.Tensor | None], str], ...] = field(repr=False)
    _sizes: tuple[tuple[dict, int], ...] = field(repr=False)
    _members: tuple[tuple[dict, str, object], ...] = field(repr=False)
    _kinds: tuple[tuple[torch.dtype, torch.Size], ...] = field(repr=False)

    @classmethod
    def of(cls, model: nn.Module) -> Census:
        """Walk the model once.

        Raises
        ------
        UnsupportedTraining
            For parameters that hold a shard, or nothing yet, instead of the whole tensor.
        """
        names, parameters, replicas, buffer_names, buffers = [], [], [], [], []
        sizes: list[tuple[dict, int]] = []
        members: list[tuple[dict, str, object]] = []
        seen: set[int] = set()
        for prefix, module, replica in _walk(model):
            tables = (module._parameters, module._buffers, module._modules)
            sizes.extend((table, len(table)) for table in tables)
            for table in (module._parameters, module._modules):
                members.extend((table, name, member) for name, member in table.items())
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    refuse_shards(prefix + name, parameter)
                    names.append(prefix + name)
                    parameters.append(parameter)
                    replicas.append(replica)
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    refuse_shards(prefix + name, buffer)
                    buffer_names.append(prefix + name)
                    buffers.append((module._buffers, name))
        return cls(
            model,
            tuple(names),
            tuple(parameters),
            tuple(replicas),
            tuple(buffer_names),
            tuple(buffers),
            tuple(sizes),
            tuple(members),
            tuple((parameter.dtype, parameter.shape) for parameter in parameters),
        )

    @property
    def buffers(self) -> list[torch.Tensor | None]:
        """The buffers as they are now: models replace them instead of writing into them."""
        return [table.get(name) for table, name in self._buffers]

    def current(self) -> bool:
        """Whether the model still has the modules, parameters and buffer names counted here."""
        return (
            all(len(table) == size for table, size in self._sizes)
            and all(table.get(name) is member for table, name, member in self._members)
            and all(
                parameter.dtype == dtype and parameter.shape == shape
                for parameter, (dtype, shape) in zip(self.parameters, self._kinds, strict=True)
            )
        )


def _walk(
    model: nn.Module,
) -> Iterator[tuple[str, nn.Module, DistributedDataParallel | None]]:
    seen: set[int] = set()
    stack: list[tuple[str, nn.Module, DistributedDataParallel | None]] = [("", model, None)]
    while stack:
        prefix, module, replica = stack.pop()
        while (inner := _inside(module)) is not None:
            if isinstance(module, DistributedDataParallel):
                replica = module
                if module.mixed_precision is not None:
                    raise UnsupportedTraining(
                        "DistributedDataParallel(mixed_precision=...) keeps two copies of each "
                        "parameter, which capture cannot follow; use torch.autocast instead"
                    )
            module = inner
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield prefix, module, replica
        # A stack pops the last child first; reversed, the order is that of registration.
        stack.extend(
            (f"{prefix}{name}.", child, replica)
            for name, child in reversed(module._modules.items())
            if child is not None
        )


def refuse_shards(name: str, tensor: torch.Tensor) -> None:
    """Raise `UnsupportedTraining` unless `tensor` is one whole dense tensor with data."""
    kind = next(
        (_SHARDED[c.__name__] for c in type(tensor).__mro__ if c.__name__ in _SHARDED), None
    )
    if kind is not None or hasattr(tensor, "ds_id"):
        raise UnsupportedTraining(
            f"expected a whole tensor; got {kind or 'a parameter partitioned by DeepSpeed'}. "
            "Sharded training is not captured yet; plain and DDP training is",
            tensor=name,
        )
    if isinstance(
        tensor, torch.nn.parameter.UninitializedParameter | torch.nn.parameter.UninitializedBuffer
    ):
        raise UnsupportedTraining(
            "this lazy parameter has no shape yet; run one forward pass before recording",
            tensor=name,
        )
    if tensor.is_meta or tensor.layout != torch.strided:
        raise UnsupportedTraining(
            f"expected a dense tensor with data; got layout {tensor.layout} on {tensor.device}",
            tensor=name,
        )
