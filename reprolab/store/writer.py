"""Writes what one rank of an attempt records."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from reprolab.errors import DamagedData, RecordingFailed
from reprolab.kernels import Fingerprint
from reprolab.store import paths
from reprolab.store.folding import fold
from reprolab.store.journal import JournalWriter
from reprolab.store.ledger import LedgerWriter
from reprolab.store.rendezvous import Rendezvous
from reprolab.store.saving import CheckpointReceipt, Saver, Tensors
from reprolab.vocabulary import Layout


class RunWriter:
    """What one rank of an attempt writes. Use :func:`begin_run`."""

    def __init__(self, run: Path, attempt: int, rendezvous: Rendezvous, timeout: float) -> None:
        self.path = run
        """Folder of the run."""
        self.rank = rendezvous.rank
        self.attempt = attempt
        self._ledger = LedgerWriter(paths.ledger(run, attempt, self.rank))
        self._journal = JournalWriter(paths.journal(run, attempt, self.rank))
        self._saver = Saver(run, attempt, rendezvous, timeout)

    def fact(self, kind: str, step: int | None = None, **fields: Any) -> None:
        """Write down one fact.

        Raises
        ------
        ValueError, TypeError
            If a field cannot be written down.
        RecordingFailed
            If the disk refuses.
        """
        self._ledger.append(kind, step, fields)

    def fingerprint(self, step: int, stream: str, layout: Layout, fingerprint: Fingerprint) -> None:
        """Record a stream's block rows at a step; the arrays may be reused afterwards.

        Raises
        ------
        ValueError
            If the rows are not the layout's, or the step was recorded already.
        RecordingFailed
            If the disk refuses.
        """
        paths.check_stream_name(stream)
        self._journal.append(step, stream, layout, fingerprint)

    def flush(self) -> None:
        """Hand everything to the operating system, at the end of a step.

        From here on it survives the death of this process; a checkpoint and :meth:`close` make it
        survive a power cut.
        """
        self._journal.flush()
        self._ledger.flush()

    def checkpoint(
        self,
        step: int,
        tensors: Tensors,
        *,
        private: Container[str] = ("rng",),
        state: Mapping[str, Any] | None = None,
    ) -> CheckpointReceipt:
        """Save the state at the start of a step; every rank calls this for the same step.

        Parameters
        ----------
        step : int
            A step never saved before.
        tensors : mapping of str to sequence of (TensorSpec, ndarray)
            For each stream its tensors in order, each with its bytes in contiguous memory.
            Ranks that hold equal bytes share the writing; one that holds others keeps its own.
        private : container of str
            Streams that each rank keeps for itself.
        state : mapping, optional
            Anything else of this rank, in JSON's types.

        Returns
        -------
        CheckpointReceipt

        Raises
        ------
        CheckpointFailed
            On every rank, if any could not do its part. Earlier checkpoints stay good.
        """
        if step < 0:
            raise ValueError(f"steps are counted from 0; got {step}")
        return self._saver.save(int(step), tensors, private, state, self._sync)

    def close(self) -> None:
        """Fold the journal into Zarr arrays and close; a second call does nothing.

        Raises
        ------
        RecordingFailed
            If the disk refuses. What was flushed stays readable.
        """
        if self._journal.closed:
            return
        try:
            self._ledger.close()
        finally:
            self._journal.close()
        self._fold()

    def _fold(self) -> None:
        group = paths.fingerprints(self.path, self.rank)
        for attempt in paths.attempts(self.path):
            journal = paths.journal(self.path, attempt, self.rank)
            if attempt > self.attempt or not journal.exists():
                continue
            try:
                fold(group, attempt, journal)
            except DamagedData as error:
                warnings.warn(f"a journal stays as it is: {error}", stacklevel=3)
            except OSError as error:
                raise RecordingFailed(
                    f"the fingerprints could not be folded ({error.strerror}); nothing is lost, "
                    "they are read from the journal",
                    run=self.path.name,
                    rank=self.rank,
                    path=journal,
                ) from error

    def _sync(self) -> None:
        self._ledger.sync()
        self._journal.sync()
