"""What is trained, beside the model: optimizers, schedulers, loss scaler, and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from reprolab.capture.census import Census, unwrap
from reprolab.capture.configuration import plain
from reprolab.capture.optimizer_state import Optimizers


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a training that update its model."""

    optimizers: Optimizers = field(default_factory=dict)
    """Optimizers by prefix of their tensors' names."""
    scheduler: Any = None
    """One learning-rate scheduler, or a list or dict of them."""
    scaler: Any = None
    """The ``torch.amp.GradScaler``, if there is one."""

    def machinery(self, census: Census) -> dict[str, Any]:
        """Classes and settings as plain JSON values."""
        wrappers = {id(ddp): ddp for ddp in census.replicas if ddp is not None}
        return {
            "model": _kind(unwrap(census.model)),
            "training": census.model.training,
            "compiled": any(
                type(module).__name__ == "OptimizedModule" for module in census.model.modules()
            ),
            "ddp": [_ddp(wrapper) for wrapper in wrappers.values()],
            "optimizers": {
                prefix.removesuffix(".") or "optimizer": {
                    "class": _kind(optimizer),
                    "defaults": plain(optimizer.defaults),
                }
                for prefix, optimizer in self.optimizers.items()
            },
            "scheduler": _kind(self.scheduler),
            "scaler": _kind(self.scaler),
        }

    def resumable(self, census: Census) -> dict[str, Any]:
        """What a checkpoint holds beside tensors, as plain JSON values.

        Groups of an optimizer name their parameters; a scheduler's and a scaler's state is theirs.
        """
        names = {id(p): name for p, name in zip(census.parameters, census.names, strict=True)}
        return {
            "optimizers": {
                prefix: [
                    {
                        **{key: plain(value) for key, value in group.items() if key != "params"},
                        "params": [names.get(id(parameter)) for parameter in group["params"]],
                    }
                    for group in optimizer.param_groups
                ]
                for prefix, optimizer in self.optimizers.items()
            },
            "scheduler": _state(self.scheduler),
            "scaler": _state(self.scaler),
        }


def _ddp(wrapper: DistributedDataParallel) -> dict[str, Any]:
    return {
        "bucket_bytes_cap": wrapper.bucket_bytes_cap,
        "gradient_as_bucket_view": wrapper.gradient_as_bucket_view,
        "find_unused_parameters": wrapper.find_unused_parameters,
        "static_graph": wrapper.static_graph,
        "broadcast_buffers": wrapper.broadcast_buffers,
        "communication_hooks": [hook.__qualname__ for hook, _ in wrapper._comm_hooks],
    }


def _state(holder: Any) -> Any:
    if isinstance(holder, list | tuple):
        return [_state(item) for item in holder]
    if isinstance(holder, dict):
        return {str(key): _state(item) for key, item in holder.items()}
    return plain(holder.state_dict()) if hasattr(holder, "state_dict") else None


def _kind(value: object) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_kind(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _kind(item) for key, item in value.items()}
    return f"{type(value).__module__}.{type(value).__qualname__}"
