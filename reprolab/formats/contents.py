"""What a checkpoint holds, while it is being collected."""

from __future__ import annotations

from typing import Any

from reprolab.errors import DamagedData
from reprolab.formats.tensors import StoredTensor


class Contents:
    """Named things sorted into tensors, tensors that cannot be read, and the rest."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.tensors: dict[str, StoredTensor] = {}
        self.unsupported: dict[str, str] = {}
        self.metadata: dict[str, Any] = {}

    def put(self, name: str, tensor: StoredTensor) -> None:
        """Add a tensor, once."""
        if name in self.tensors:
            raise DamagedData(
                f"two tensors are both called {name!r}; save them under names that stay different "
                "when nested names are joined by dots",
                path=self.label,
            )
        self.tensors[name] = tensor
