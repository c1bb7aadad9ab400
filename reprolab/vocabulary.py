"""The words every layer shares: streams in causal order, tensors, blocks, layouts.

A *stream* is one kind of state within a step. A *tensor* is one named tensor of a stream. A
*block* is a fixed range of a tensor's bytes in global row-major order: it depends on shape and
dtype only, never on how the tensor is sharded. A *layout* lists the tensors of a stream in order
and says which blocks are whose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

STATE_STREAMS = ("rng", "params", "buffers", "optimizer")
"""State at the start of a step; after the last step N they are recorded as the start of step N."""

EVENT_STREAMS = ("batch", "activations", "loss", "grads_local", "grads", "grads_used")
"""What happens within a step. ``grads`` is after reduction; ``grads_used`` is unscaled and
clipped, as the optimizer got them."""

STREAMS = STATE_STREAMS + EVENT_STREAMS
"""All streams in causal order: the first difference in this order names the cause."""

PHASES = ("data", "forward", "backward", "reduce", "optimizer", "checkpoint", "capture")
"""Names of the spans that recording itself writes."""

ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}
"""Bytes of one element of each dtype reprolab fingerprints, by its Zarr name."""

BLOCK_BYTES = 1 << 20
"""Default size of a block."""

MOMENTS = ("count", "nan", "inf", "min", "max", "sum", "sumsq")
"""Columns of a block's moments; the last four are over finite values."""

LANES = 16
"""Signed sums in a block's sketch."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named tensor: its dtype and global shape."""

    name: str
    dtype: str
    """A key of :data:`ITEMSIZE`."""
    shape: tuple[int, ...]
    """Global shape; ``()`` for a scalar."""

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            known = ", ".join(ITEMSIZE)
            raise ValueError(
                f"tensor {self.name!r}: dtype must be one of {known}; got {self.dtype!r}"
            )
        if any(extent < 0 for extent in self.shape):
            raise ValueError(
                f"tensor {self.name!r}: extents must not be negative; got {self.shape}"
            )

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * ITEMSIZE[self.dtype]

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> int:
        """Number of blocks; an empty tensor has none."""
        return -(-self.nbytes // block_bytes)


@dataclass(frozen=True, slots=True)
class Region:
    """The box of a tensor that one rank holds."""

    offset: tuple[int, ...]
    """Global index of the first element, one number a dim."""
    shape: tuple[int, ...]
    """Extent of the box, one number a dim."""

    def __post_init__(self) -> None:
        if len(self.offset) != len(self.shape):
            raise ValueError(f"offset {self.offset} and shape {self.shape} differ in length")
        if any(number < 0 for number in self.offset + self.shape):
            raise ValueError(
                f"offset and shape must not be negative; got {self.offset}, {self.shape}"
            )


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of one stream, in order, and where each one's blocks start.

    Block ``b`` of tensor ``t`` stands in row ``starts[t] + b`` of the stream's fingerprint arrays.
    """

    tensors: tuple[TensorSpec, ...]
    block_bytes: int = BLOCK_BYTES
    starts: tuple[int, ...] = field(init=False, compare=False)
    """First block row of each tensor, and at the end the number of all block rows."""

    def __post_init__(self) -> None:
        if self.block_bytes <= 0 or self.block_bytes % 16:
            raise ValueError(
                f"block_bytes must be a positive multiple of 16; got {self.block_bytes}"
            )
        starts = [0]
        for tensor in self.tensors:
            starts.append(starts[-1] + tensor.blocks(self.block_bytes))
        object.__setattr__(self, "starts", tuple(starts))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in order."""
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def rows(self) -> int:
        """Number of block rows of the whole stream."""
        return self.starts[-1]

    def rows_of(self, index: int) -> slice:
        """Block rows of the tensor at `index`."""
        return slice(self.starts[index], self.starts[index + 1])
