"""Reads the fingerprints of one rank, folded or still in journals, of all attempts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprolab.errors import DamagedData, NothingToCompare
from reprolab.kernels import Fingerprint
from reprolab.store import paths
from reprolab.store.folded import FoldedStream, read_index
from reprolab.store.journal import Entry, JournalReader
from reprolab.store.layouts import roll_up
from reprolab.vocabulary import STREAMS, Layout


class _Folded(NamedTuple):
    """A row of a folded stream."""

    source: FoldedStream
    row: int
    layout: Layout
    digest: int

    def fingerprint(self) -> Fingerprint:
        return self.source.fingerprint(self.row, self.layout)

    def tensors(self, column: str) -> np.ndarray:
        return self.source.tensor_row(f"tensor_{column}", self.row, self.layout)


class _Journaled(NamedTuple):
    """An entry of a journal."""

    source: JournalReader
    entry: Entry

    @property
    def layout(self) -> Layout:
        return self.entry.layout

    @property
    def digest(self) -> int:
        return self.entry.digest

    def fingerprint(self) -> Fingerprint:
        return self.source.read(self.entry)

    def tensors(self, column: str) -> np.ndarray:
        return getattr(roll_up(self.layout, self.fingerprint()), column)


class FingerprintReader:
    """Fingerprints of one rank as they were when it was made.

    Where several attempts recorded a step, the newest is read unless another is asked for.
    """

    def __init__(self, run: Path, rank: int) -> None:
        self.run = run
        self.rank = rank
        # Journals first: one that is folded and removed from here on stays open, and one that was
        # folded before is in the arrays by now. Where a row is in both it is the same.
        journals = _journals(run, rank)
        found: dict[str, dict[int, dict[int, _Folded | _Journaled]]] = {}
        for stream, source in _folded_streams(run, rank):
            index = source.index
            columns = ("step", "attempt", "layout", "stream_digest")
            rows = zip(*(source.whole(name).tolist() for name in columns), strict=True)
            for row, (step, attempt, layout, digest) in enumerate(rows):
                found.setdefault(stream, {}).setdefault(step, {})[attempt] = _Folded(
                    source, row, index.layouts[layout], digest
                )
        for attempt, journal in journals:
            for entry in journal.entries:
                steps = found.setdefault(entry.stream, {})
                steps.setdefault(entry.step, {})[attempt] = _Journaled(journal, entry)
        order = {stream: place for place, stream in enumerate(STREAMS)}
        self._found = {
            stream: dict(sorted(found[stream].items()))
            for stream in sorted(found, key=lambda stream: (order.get(stream, len(order)), stream))
        }

    @property
    def streams(self) -> list[str]:
        """Recorded streams, in causal order."""
        return list(self._found)

    def steps(self, stream: str) -> np.ndarray:
        """Steps at which a stream was recorded: int64 [steps], ascending; none if it never was."""
        return np.fromiter(self._found.get(stream, {}), np.int64)

    def recordings(self, stream: str, step: int) -> list[int]:
        """Attempts that recorded a step, in order."""
        return sorted(self._found.get(stream, {}).get(int(step), {}))

    def layout(self, stream: str, step: int, attempt: int | None = None) -> Layout:
        """Tensors and blocks of a stream at a step."""
        return self._recording(stream, step, attempt).layout

    def stream_digests(self, stream: str) -> np.ndarray:
        """Digest of the whole stream at each of its steps: uint64 [steps]."""
        steps = self._found.get(stream, {}).values()
        return np.fromiter((attempts[max(attempts)].digest for attempts in steps), np.uint64)

    def tensor_digests(self, stream: str, step: int, attempt: int | None = None) -> np.ndarray:
        """Digest of each tensor: uint64 [tensors]."""
        return self._tensors(stream, step, attempt, "digest")

    def tensor_moments(self, stream: str, step: int, attempt: int | None = None) -> np.ndarray:
        """Moments of each tensor: float64 [tensors, 7]."""
        return self._tensors(stream, step, attempt, "moments")

    def tensor_sketches(self, stream: str, step: int, attempt: int | None = None) -> np.ndarray:
        """Sketch of each tensor: float64 [tensors, 16]."""
        return self._tensors(stream, step, attempt, "sketch")

    def fingerprint(self, stream: str, step: int, attempt: int | None = None) -> Fingerprint:
        """Block rows of a stream at a step.

        Raises
        ------
        NothingToCompare
            If the stream was not recorded at this step.
        DamagedData
            If the rows do not check.
        """
        try:
            return self._recording(stream, step, attempt).fingerprint()
        except DamagedData as error:
            raise error.at(step=step, **self._place(stream)) from None

    def _tensors(self, stream: str, step: int, attempt: int | None, column: str) -> np.ndarray:
        try:
            return self._recording(stream, step, attempt).tensors(column)
        except DamagedData as error:
            raise error.at(step=step, **self._place(stream)) from None

    def _recording(self, stream: str, step: int, attempt: int | None) -> _Folded | _Journaled:
        attempts = self._found.get(stream, {}).get(int(step), {})
        wanted = max(attempts, default=0) if attempt is None else attempt
        if wanted not in attempts:
            steps = self.steps(stream)
            known = f"steps {steps[0]} to {steps[-1]}" if len(steps) else "no step"
            which = "" if attempt is None else f" in attempt {attempt}"
            raise NothingToCompare(
                f"this stream was not recorded at this step{which}; it has {known}",
                step=step,
                **self._place(stream),
            )
        return attempts[wanted]

    def _place(self, stream: str) -> dict[str, object]:
        return {"run": self.run.name, "rank": self.rank, "stream": stream}


def _journals(run: Path, rank: int) -> list[tuple[int, JournalReader]]:
    found = []
    for attempt in paths.attempts(run):
        path = paths.journal(run, attempt, rank)
        try:
            found.append((attempt, JournalReader(path)))
        except FileNotFoundError:
            continue
        except DamagedData as error:
            raise error.at(run=run.name, rank=rank) from None
    return found


def _folded_streams(run: Path, rank: int) -> list[tuple[str, FoldedStream]]:
    group = paths.fingerprints(run, rank)
    found = []
    for folder in sorted(group.iterdir()) if group.is_dir() else []:
        index = read_index(folder) if folder.is_dir() else None
        if index is not None:
            found.append((folder.name, FoldedStream(folder, index)))
    return found
