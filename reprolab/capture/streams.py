"""From named tensors to one stream's layout and fingerprint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reprolab.errors import ReprolabError, UnsupportedTraining
from reprolab.kernels import Fingerprint, fingerprint_stream
from reprolab.vocabulary import Layout, TensorSpec

Named = Sequence[tuple[str, torch.Tensor]]
"""Tensors of a stream with their names, in the stream's order."""


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers (a view); any other as it is."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def spec(name: str, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> TensorSpec:
    """What a layout says about `tensor`.

    Raises
    ------
    UnsupportedTraining
        For a dtype that has no fingerprint.
    """
    try:
        return TensorSpec(
            name, str(dtype or tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        )
    except ValueError as problem:
        raise UnsupportedTraining(str(problem), tensor=name) from problem


class Stream:
    """Reads one stream, again and again; the layout is rebuilt only when the tensors change kind.

    Parameters
    ----------
    name : str
        A name of :data:`reprolab.vocabulary.STREAMS`.
    block_bytes : int
        Size of a block.
    """

    def __init__(self, name: str, block_bytes: int) -> None:
        self.name = name
        self._block_bytes = block_bytes
        self._kinds: list[tuple[str, torch.dtype, torch.Size]] | None = None
        self._layout = Layout((), block_bytes)

    def layout(self, named: Named) -> Layout:
        """The layout of these tensors; the same object as last time where nothing changed."""
        kinds = [(name, tensor.dtype, tensor.shape) for name, tensor in named]
        if kinds != self._kinds:
            self._layout = Layout(
                tuple(spec(name, tensor) for name, tensor in named), self._block_bytes
            )
            self._kinds = kinds
        return self._layout

    def read(self, named: Named) -> tuple[Layout, Fingerprint]:
        """Layout and fingerprint of these tensors as they are now."""
        layout = self.layout(named)
        try:
            return layout, fingerprint_stream([tensor for _, tensor in named], layout)
        except ReprolabError as problem:
            problem.at(stream=self.name)
            raise


def contiguous_bytes(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor in row-major order, uint8 [nbytes]; a view where it can be one."""
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy()
