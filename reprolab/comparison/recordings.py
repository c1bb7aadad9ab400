"""What one rank of one run recorded, read so that damage costs only what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from reprolab.errors import DamagedData
from reprolab.kernels import Fingerprint
from reprolab.store import Run
from reprolab.vocabulary import Layout

T = TypeVar("T")

_NO_STEPS = np.zeros(0, np.int64)


class Context:
    """What all recordings of one comparison share."""

    def __init__(self) -> None:
        self.damage: list[str] = []
        """One line for everything that could not be read."""
        self._layouts: dict[Layout, Layout] = {}
        self._known: dict[int, tuple[Layout, Layout]] = {}

    def report(self, error: DamagedData) -> None:
        """Note that something could not be read, once."""
        line = str(error)
        if line not in self.damage:
            self.damage.append(line)

    def one(self, layout: Layout) -> Layout:
        """The one object that stands for all equal layouts, so that ``is`` tells them apart."""
        known = self._known.get(id(layout))
        if known is None:
            # The layout itself is kept as well, so that its id is not given away.
            known = layout, self._layouts.setdefault(layout, layout)
            self._known[id(layout)] = known
        return known[1]


class Recording:
    """The fingerprints of one rank.

    Parameters
    ----------
    run : Run
        The run.
    rank : int
        A rank that the run has records of.
    context : Context
        Shared by all recordings of a comparison.
    """

    def __init__(self, run: Run, rank: int, context: Context) -> None:
        self.run = run
        self.rank = rank
        self._context = context
        self._reader = self._tried(lambda: run.fingerprints(rank))
        self._steps: dict[str, np.ndarray] = {}
        self._digests: dict[str, np.ndarray] = {}

    @property
    def streams(self) -> list[str]:
        """Streams recorded, as the reader lists them."""
        return self._reader.streams if self._reader else []

    def steps(self, stream: str) -> np.ndarray:
        """Steps recorded, int64 [steps], ascending; none where the stream cannot be read."""
        if stream not in self._steps:
            self._steps[stream], self._digests[stream] = self._overview(stream)
        return self._steps[stream]

    def digests(self, stream: str, steps: np.ndarray) -> np.ndarray:
        """Digests of the whole stream at `steps`, uint64 [steps]."""
        known = self.steps(stream)
        return self._digests[stream][np.searchsorted(known, steps)]

    def layout(self, stream: str, step: int) -> Layout:
        """The tensors of a stream at a step."""
        assert self._reader is not None  # noqa: S101
        return self._context.one(self._reader.layout(stream, step))

    def tensors(self, stream: str, steps: Sequence[int]) -> tuple[Fingerprint, list[int]]:
        """Roll-ups of whole tensors at steps of one layout.

        Returns
        -------
        Fingerprint
            Rows are (step, tensor), the tensor varying fastest.
        list of int
            The steps that could be read; rows of the others are left out.
        """
        reader = self._reader
        assert reader is not None  # noqa: S101
        parts, read = [], []
        for step in steps:
            part = self._tried(
                lambda step=step: Fingerprint(  # type: ignore[misc]
                    reader.tensor_digests(stream, step),
                    reader.tensor_moments(stream, step),
                    reader.tensor_sketches(stream, step),
                )
            )
            if part is not None:
                parts.append(part)
                read.append(step)
        return stacked(parts), read

    def tensor_digests(self, stream: str, step: int) -> np.ndarray | None:
        """Digests of whole tensors, uint64 [tensors]; None where they cannot be read."""
        reader = self._reader
        assert reader is not None  # noqa: S101
        return self._tried(lambda: reader.tensor_digests(stream, step))

    def blocks(self, stream: str, step: int) -> Fingerprint | None:
        """Fingerprint of every block; None where it cannot be read."""
        reader = self._reader
        assert reader is not None  # noqa: S101
        return self._tried(lambda: reader.fingerprint(stream, step))

    def _overview(self, stream: str) -> tuple[np.ndarray, np.ndarray]:
        reader = self._reader
        if reader is None or stream not in reader.streams:
            return _NO_STEPS, np.zeros(0, np.uint64)
        found = self._tried(lambda: (reader.steps(stream), reader.stream_digests(stream)))
        return found if found is not None else (_NO_STEPS, np.zeros(0, np.uint64))

    def _tried(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except DamagedData as error:
            self._context.report(error.at(run=self.run.name, rank=self.rank))  # type: ignore[arg-type]
            return None


def stacked(parts: Sequence[Fingerprint]) -> Fingerprint:
    """Rows of fingerprints one after the other."""
    if not parts:
        return Fingerprint.zeros(0)
    return Fingerprint(
        np.concatenate([part.digest for part in parts]),
        np.concatenate([part.moments for part in parts]),
        np.concatenate([part.sketch for part in parts]),
    )
