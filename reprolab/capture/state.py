"""The state streams: what a step starts from."""

from __future__ import annotations

from collections.abc import Callable

import torch

from reprolab.capture.census import Census
from reprolab.capture.optimizer_state import optimizer_tensors
from reprolab.capture.rng import rng_states
from reprolab.capture.streams import Named, real, spec
from reprolab.capture.training import Training


class State:
    """Finds the tensors of each state stream as they are now.

    Parameters
    ----------
    census : Census
    training : Training
    """

    def __init__(self, census: Census, training: Training) -> None:
        self._training = training
        self.follow(census)

    def check(self) -> None:
        """Raise `UnsupportedTraining` for a tensor that could not be fingerprinted."""
        for read in self.readers.values():
            for name, tensor in read():
                spec(name, tensor)

    def follow(self, census: Census) -> None:
        """Use another census, after the model changed."""
        self._census = census

    @property
    def readers(self) -> dict[str, Callable[[], Named]]:
        """For each state stream, in causal order, what gives its tensors."""
        return {
            "rng": rng_states,
            "params": self._parameters,
            "buffers": self._buffers,
            "optimizer": self._optimizer,
        }

    def _parameters(self) -> list[tuple[str, torch.Tensor]]:
        pairs = zip(self._census.names, self._census.parameters, strict=True)
        return [(name, real(parameter)) for name, parameter in pairs]

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        pairs = zip(self._census.buffer_names, self._census.buffers, strict=True)
        return [(name, real(buffer)) for name, buffer in pairs if buffer is not None]

    def _optimizer(self) -> list[tuple[str, torch.Tensor]]:
        found = optimizer_tensors(self._training.optimizers, self._census, self._training.scaler)
        return [(name, real(tensor)) for name, tensor in found]
