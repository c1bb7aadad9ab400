"""The recorder: a context manager around a training loop."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from torch import nn

from reprolab.capture.census import Census
from reprolab.capture.code import code
from reprolab.capture.configuration import plain
from reprolab.capture.environment import environment
from reprolab.capture.optimizer_state import check_parameters
from reprolab.capture.redaction import redact_settings
from reprolab.capture.rendezvous import StoreRendezvous, meet
from reprolab.capture.scribe import Scribe
from reprolab.capture.state import State
from reprolab.capture.training import Training
from reprolab.errors import (
    CheckpointError,
    RankTimeout,
    RecordingFailed,
    ReprolabError,
    UnsupportedTraining,
)
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run

_recorded: weakref.WeakSet[nn.Module] = weakref.WeakSet()


class Recorder:
    """Records one training run on this rank; made by :func:`reprolab.capture.record`.

    A context manager: it attaches when entered, and when left it takes its hooks off and finishes
    the record, however the training ended. Exceptions of the training pass through unchanged.
    """

    def __init__(
        self,
        lab: str | Path,
        run: str,
        model: nn.Module,
        training: Training,
        config: object,
        policy: Policy,
        parent: tuple[str, int] | None,
    ) -> None:
        self._lab = lab
        self._run = run
        self._model = model
        self._training = training
        self._config = redact_settings(plain({} if config is None else config))
        self._policy = policy
        self._parent = parent
        self._path: Path | None = None
        self._rendezvous: StoreRendezvous | None = None
        self._scribe: Scribe | None = None
        self._phase = "not entered yet"
        self.step_index = 0
        """The step in progress, counted from 0."""

    @property
    def path(self) -> Path:
        """Folder of the run; known once the recorder is entered."""
        if self._path is None:
            raise RecordingFailed("a recorder has no folder before it is entered", run=self._run)
        return self._path

    def __enter__(self) -> Self:
        if self._phase != "not entered yet":
            raise RecordingFailed(
                "a recorder records once; call record() again, with another run name", run=self._run
            )
        self._modules = set(self._model.modules())
        if not self._modules.isdisjoint(_recorded):
            raise UnsupportedTraining(
                "another recorder is at work on this model, or on a part of it; close it first",
                run=self._run,
            )
        self._rendezvous = meet()
        try:
            self._scribe = self._begin()
        except BaseException as problem:
            if isinstance(problem, ReprolabError):
                problem.at(**self._where())
            self._release(_ending(problem))
            raise
        self._phase = "open"
        _recorded.update(self._modules)
        try:
            self._write(self._scribe.open_step)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _begin(self) -> Scribe:
        census = Census.of(self._model)
        check_parameters(self._training.optimizers, census)
        State(census, self._training).check()
        rendezvous = self._rendezvous
        writer = begin_run(
            self._lab,
            self._run,
            rendezvous=rendezvous or Alone(),
            config=self._config,
            mesh={"dp": rendezvous.world_size if rendezvous else 1},
            policy=self._policy,
            environment={**environment(), "training": self._training.machinery(census)},
            # The store keeps rank 0's; every rank's modules are in its environment, as one hash.
            code=code() if rendezvous is None or rendezvous.rank == 0 else {},
            parent=self._parent,
            timeout=self._policy.rank_timeout,
        )
        self._path = writer.path
        reducing = rendezvous is not None
        return Scribe(self._training, census, self._policy, writer, reducing=reducing)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._finish(_ending(error))
        except Exception as problem:
            error.add_note(f"reprolab could not finish the record of {self._run!r}: {problem}")

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Iterate over `loader`, noting each batch and how long it took to come.

        The loader is asked exactly as a plain ``for`` would ask it.
        """
        iterator = iter(loader)
        while True:
            began = perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            scribe = self._attached()
            if scribe is not None:
                scribe.note_batch(batch, began)
            yield batch

    def batch(self, batch: object) -> None:
        """Note one batch, or micro-batch, in a loop that does not use :meth:`batches`."""
        scribe = self._attached()
        if scribe is not None:
            scribe.note_batch(batch)

    def step(self, loss: object = None, **metrics: object) -> None:
        """Close the step: write what happened in it, then the state the next one starts from.

        Call it last in the loop: after the optimizer, the scheduler and ``zero_grad``.

        Parameters
        ----------
        loss : tensor, number, or nesting of them, optional
            Fingerprinted as the stream ``loss``; single numbers become metrics too.
        **metrics : number or tensor of one element
            Written to the ledger.

        Raises
        ------
        UnsupportedTraining
            If nothing happened since the last call.
        RecordingFailed, CheckpointFailed
            If the disk refuses and the policy says ``on_write_error="stop"``.
        """
        scribe = self._attached()
        if scribe is not None:
            if scribe.idle:
                raise UnsupportedTraining(
                    "rec.step() was called, but nothing happened since the last call: no batch, no "
                    "forward or backward pass, no optimizer step. Call it once, as a step ends",
                    **self._where(step=self.step_index),
                )
            self._write(lambda: scribe.close_step(loss, metrics))
        self.step_index += 1

    def close(self) -> None:
        """Take all hooks off the training and finish the record; a second call does nothing."""
        self._finish("finished")

    def _finish(self, reason: str) -> None:
        if self._phase not in ("open", "lost"):
            return
        lost, self._phase = self._phase == "lost", "closed"
        _recorded.difference_update(self._modules)
        if not lost and self._scribe is not None:
            self._release(reason)
            scribe = self._scribe
            self._write(lambda: scribe.finish(reason))

    def _attached(self) -> Scribe | None:
        """The scribe, or `None` once the disk refused and the training goes on unrecorded."""
        if self._phase == "lost":
            return None
        if self._phase != "open" or self._scribe is None:
            raise RecordingFailed(
                f"this recorder is {self._phase}; use it inside of `with record(...) as rec:`",
                run=self._run,
                step=self.step_index,
            )
        return self._scribe

    def _release(self, reason: str) -> None:
        if self._scribe is not None:
            self._scribe.detach()
        if self._rendezvous is not None:
            self._rendezvous.leave(reason)

    def _write(self, action: Callable[[], None]) -> None:
        """Do what writes; a refusal goes the way the policy says."""
        try:
            action()
        except (OSError, RecordingFailed, CheckpointError, RankTimeout) as problem:
            if self._phase == "open":
                self._phase = "lost"
                self._release(str(problem))
            self._complain(problem)

    def _complain(self, problem: Exception) -> None:
        where = self._where(step=self.step_index)
        if self._policy.on_write_error == "warn":
            warnings.warn(
                f"recording of run {self._run!r} stopped at step {self.step_index}, and the "
                f"training goes on unrecorded: {problem}",
                RuntimeWarning,
                stacklevel=4,
            )
        elif isinstance(problem, ReprolabError):
            raise problem.at(**where)
        else:
            raise RecordingFailed(
                f"could not be written: {problem}. Free some space, or let the training go on "
                'with Policy(on_write_error="warn")',
                **where,
            ) from problem

    def _where(self, **more: object) -> dict[str, object]:
        rank = self._rendezvous.rank if self._rendezvous is not None else None
        return {"run": self._run, "rank": rank, **more}


def _ending(error: BaseException) -> str:
    """Which exception ended the training, and where; its text may hold anything, so not that."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "site-packages" not in file:
            place = f" at {Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return type(error).__name__ + place
