"""Which tensors of two layouts are the same tensor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from reprolab.vocabulary import Layout, TensorSpec

Rows = slice | np.ndarray
"""Something that selects tensors (or rows) of an array."""


@dataclass(frozen=True, slots=True)
class LayoutDifference:
    """One tensor that cannot be compared, because the sides do not both hold it alike."""

    stream: str
    tensor: str
    a: TensorSpec | None
    """What it is in a; None where only b has it."""
    b: TensorSpec | None
    """What it is in b; None where only a has it."""

    def __str__(self) -> str:
        if self.a is None or self.b is None:
            only, spec = ("b", self.b) if self.a is None else ("a", self.a)
            return f"{self.tensor} ({_look(spec)}) only in {only}"
        return f"{self.tensor} is {_look(self.a)} in a, {_look(self.b)} in b"


def _look(spec: TensorSpec | None) -> str:
    assert spec is not None  # noqa: S101
    return f"{spec.dtype} {list(spec.shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Two layouts of one stream, tensor by tensor."""

    tensors: tuple[TensorSpec, ...]
    """The tensors that both sides hold alike, in the order of a."""
    in_a: Rows
    """Where they stand in a's arrays."""
    in_b: Rows
    """Where they stand in b's arrays."""
    unmatched: dict[str, tuple[TensorSpec | None, TensorSpec | None]]
    """The other tensors, by name."""
    identical: bool
    """The layouts are the same, so that digests of the whole stream compare."""

    def without(self, names: Collection[str]) -> Match:
        """The same match, as if neither side held the tensors called `names`."""
        keep = [index for index, tensor in enumerate(self.tensors) if tensor.name not in names]
        every = np.arange(len(self.tensors))
        in_a, in_b = (
            every[rows] if isinstance(rows, slice) else rows for rows in (self.in_a, self.in_b)
        )
        kept = tuple(self.tensors[index] for index in keep)
        return Match(kept, in_a[keep], in_b[keep], self.unmatched, False)


def match(a: Layout, b: Layout) -> Match:
    """Match the tensors of two layouts by name, dtype and shape.

    Block sizes need not agree: digests and sketches of whole tensors do not depend on them.

    Examples
    --------
    >>> x, y, z = (TensorSpec(name, "float32", (2,)) for name in "xyz")
    >>> found = match(Layout((x, y)), Layout((y, z)))
    >>> [tensor.name for tensor in found.tensors], sorted(found.unmatched)
    (['y'], ['x', 'z'])
    """
    if a.tensors == b.tensors:
        return Match(a.tensors, slice(None), slice(None), {}, True)
    theirs = {tensor.name: index for index, tensor in enumerate(b.tensors)}
    in_a, in_b = [], []
    unmatched: dict[str, tuple[TensorSpec | None, TensorSpec | None]] = {}
    for index, tensor in enumerate(a.tensors):
        other = theirs.pop(tensor.name, None)
        if other is not None and b.tensors[other] == tensor:
            in_a.append(index)
            in_b.append(other)
        else:
            unmatched[tensor.name] = (tensor, None if other is None else b.tensors[other])
    unmatched |= {name: (None, b.tensors[index]) for name, index in theirs.items()}
    return Match(
        tuple(a.tensors[index] for index in in_a),
        np.array(in_a, np.intp),
        np.array(in_b, np.intp),
        unmatched,
        False,
    )
