"""The one object that says what is captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reprolab.vocabulary import BLOCK_BYTES, STREAMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a recorder captures, how often, and what it does when it cannot.

    Examples
    --------
    >>> Policy(checkpoint_every=20).streams[0]
    'rng'
    >>> Policy(every=0)
    Traceback (most recent call last):
    ValueError: every must be at least 1; got 0
    """

    streams: tuple[str, ...] = tuple(stream for stream in STREAMS if stream != "activations")
    """Streams to fingerprint. ``activations`` is not captured yet."""
    every: int = 1
    """Fingerprint every n-th step, counted from step 0."""
    block_bytes: int = BLOCK_BYTES
    """Size of a block in bytes."""
    checkpoint_every: int | None = None
    """Save the full state every n-th step, counted from step 0; ``None`` never saves."""
    on_write_error: Literal["stop", "warn"] = "stop"
    """When the disk refuses: ``"stop"`` raises out of the training loop; ``"warn"`` says so once,
    stops recording and lets the training go on."""
    rank_timeout: float = 300.0
    """Seconds to wait for the other ranks when a run starts or a checkpoint is committed."""

    def __post_init__(self) -> None:
        unknown = [stream for stream in self.streams if stream not in STREAMS]
        if unknown:
            raise ValueError(f"streams must be among {STREAMS}; got {unknown}")
        if "activations" in self.streams:
            raise ValueError("the stream 'activations' is not captured yet; leave it out")
        if self.every < 1:
            raise ValueError(f"every must be at least 1; got {self.every}")
        if self.block_bytes <= 0 or self.block_bytes % 16:
            raise ValueError(
                f"block_bytes must be a positive multiple of 16; got {self.block_bytes}"
            )
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1; got {self.checkpoint_every}")
        if self.on_write_error not in ("stop", "warn"):
            raise ValueError(
                f"on_write_error must be 'stop' or 'warn'; got {self.on_write_error!r}"
            )
        if not self.rank_timeout > 0:
            raise ValueError(f"rank_timeout must be positive; got {self.rank_timeout}")
