"""Everything one demo training is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

PUBLIC = ("steps", "seed", "batch_size", "context", "width", "depth", "heads", "dropout", "lr")
"""The settings a training declares as its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one training, handed to each process as one line of JSON."""

    lab: str
    run: str
    steps: int = 64
    seed: int = 20
    batch_size: int = 8
    """Windows of text a rank sees at each step."""
    context: int = 64
    """Bytes of text in a window."""
    width: int = 128
    depth: int = 3
    heads: int = 4
    dropout: float = 0.1
    lr: float = 1e-3
    checkpoint_every: int = 16
    block_bytes: int = 1 << 14
    """Far below the default, so that the small tensors here have several blocks to look at."""
    windows: int = 640
    """Windows of text in an epoch."""

    bucket_cap_mb: float = 25.0
    reshuffle: bool = True
    """Whether each epoch has an order of its own."""
    dropout_seed: int = 1
    lr_factor: float = 1.0
    """What the learning rate is multiplied by from ``lr_factor_from`` on."""
    lr_factor_from: int = 0
    flip_before: int | None = None
    """Step before whose start one bit flips, or None."""
    flip_rank: int = 2
    flip_tensor: str = "blocks.1.widen.weight"
    flip_element: int = 4321
    flip_bit: int = 20

    @property
    def config(self) -> dict[str, object]:
        """What the training writes down as its configuration."""
        return {key: value for key, value in asdict(self).items() if key in PUBLIC}

    def to_json(self) -> str:
        """One line, as a process reads it from its standard input."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read what :meth:`to_json` wrote."""
        return cls(**json.loads(text))
