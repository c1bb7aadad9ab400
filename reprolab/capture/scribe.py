"""Writes a training down step by step: what happened in a step, then what the next starts from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch

from reprolab.capture.batches import Batches, flatten
from reprolab.capture.census import Census
from reprolab.capture.resources import Resources
from reprolab.capture.spans import Span, Spans
from reprolab.capture.state import State
from reprolab.capture.streams import Stream, contiguous_bytes
from reprolab.capture.training import Training
from reprolab.capture.watch import Watch
from reprolab.kernels import Fingerprint
from reprolab.policy import Policy
from reprolab.store import RunWriter
from reprolab.vocabulary import STATE_STREAMS, STREAMS, Layout


class Scribe:
    """Attaches to a training and writes each of its steps.

    Parameters
    ----------
    training : Training
    census : Census
    policy : Policy
    writer : RunWriter
    reducing : bool
        Whether other ranks may contribute to the gradients.
    """

    def __init__(
        self,
        training: Training,
        census: Census,
        policy: Policy,
        writer: RunWriter,
        *,
        reducing: bool,
    ) -> None:
        self.step = 0
        """The step in progress."""
        self._training = training
        self._policy = policy
        self._writer = writer
        self._wanted = set(policy.streams)
        self._spans = Spans()
        self._resources = Resources()
        self._batches = Batches(policy.block_bytes)
        self._streams = {name: Stream(name, policy.block_bytes) for name in STREAMS}
        self._state = State(census, training)
        self._watch = Watch(census, training.optimizers, policy, self._spans, reducing=reducing)
        self._noted: list[dict[str, Any]] = []
        self._own: tuple[int, Span] | None = None
        self._state_of: int | None = None
        self._missed_batch = False

    @property
    def idle(self) -> bool:
        """Whether nothing happened yet in this step."""
        return not (self._batches.count or self._watch.active)

    def detach(self) -> None:
        """Take all hooks off the training."""
        self._watch.remove()

    def note_batch(self, batch: object, began: float | None = None) -> None:
        """Read a batch; it was asked for at `began`, where that is known."""
        if began is not None:
            self._spans.add("data", began)
        with self._spans.capturing():
            due = self._due and "batch" in self._wanted
            self._noted.append(self._batches.read(batch, fingerprint=due))

    def open_step(self) -> None:
        """Write the state the step starts from, and save it whole when that is due."""
        with self._spans.capturing():
            census = self._watch.follow()
            if census is not None:
                self._state.follow(census)
            self._watch.reading = self._due
            if self._due:
                self._write_state()
            self._writer.flush()
        every = self._policy.checkpoint_every
        if every is not None and self.step % every == 0:
            began = perf_counter()
            resumable = self._training.resumable(self._watch.census)
            self._writer.checkpoint(self.step, self._full_state(), state=resumable)
            self._spans.add("checkpoint", began)

    def close_step(self, loss: object, metrics: Mapping[str, object]) -> None:
        """Write what happened in the step, then open the next one."""
        began = perf_counter()
        with self._spans.capturing():
            losses = list(flatten(loss, "loss"))
            values = {name: number(name, value) for name, value in metrics.items()}
            values |= {name: float(leaf.item()) for name, leaf in losses if single(leaf)}
            self._write_own()
            self._write_events(losses)
            self._write_facts(values)
        self.step += 1
        self.open_step()
        self._own = self.step - 1, self._spans.take_own(began)

    def finish(self, reason: str) -> None:
        """Write the end; the state after the last step too, if the training came to its end."""
        if reason == "finished" and self._state_of != self.step:
            self._write_state()
        self._write_own()
        self._write_noted()
        self._writer.fact("end", self.step, reason=reason)
        self._writer.close()

    @property
    def _due(self) -> bool:
        return self.step % self._policy.every == 0

    def _write_events(self, losses: list) -> None:
        batch = self._batches.take()
        streams = list(self._watch.take_streams())
        if not self._due:
            return
        if batch is not None:
            self._put("batch", *batch)
        elif "batch" in self._wanted and not self._missed_batch:
            self._missed_batch = True
            warnings.warn(
                f"no batch was seen in step {self.step}, so the data cannot be compared; iterate "
                "over rec.batches(loader), or hand each batch to rec.batch(batch)",
                UserWarning,
                stacklevel=4,
            )
        if losses and "loss" in self._wanted:
            self._put("loss", *self._streams["loss"].read(losses))
        for name, layout, found in streams:
            self._put(name, layout, found)

    def _write_noted(self) -> None:
        for fields in self._noted:
            self._writer.fact("batch", self.step, **fields)
        self._noted.clear()
        for span in self._spans.take():
            self._write_span(self.step, span)

    def _write_facts(self, values: Mapping[str, float]) -> None:
        fact, step = self._writer.fact, self.step
        self._write_noted()
        for text in self._watch.take_notes():
            fact("note", step, text=text)
        for name, value in values.items():
            fact("metric", step, name=name, value=value)
        sample = self._resources.sample()
        if sample is not None:
            fact("resource", step, **sample)

    def _write_state(self) -> None:
        for name, tensors in self._state.readers.items():
            if name in self._wanted:
                self._put(name, *self._streams[name].read(tensors()))
        self._state_of = self.step

    def _write_own(self) -> None:
        # What a step cost is known only when it is written, so this comes with the next one.
        if self._own is not None:
            self._write_span(*self._own)
            self._own = None

    def _write_span(self, step: int, span: Span) -> None:
        self._writer.fact("span", step, name=span.name, start=span.start, duration=span.duration)

    def _put(self, stream: str, layout: Layout, found: Fingerprint) -> None:
        if layout.rows:
            self._writer.fingerprint(self.step, stream, layout, found)

    def _full_state(self) -> dict[str, list]:
        state = {}
        for stream in STATE_STREAMS:
            named = self._state.readers[stream]()
            specs = self._streams[stream].layout(named).tensors
            state[stream] = [
                (tensor_spec, contiguous_bytes(tensor))
                for tensor_spec, (_, tensor) in zip(specs, named, strict=True)
            ]
        return state


def single(leaf: Any) -> bool:
    """Whether a tensor or array holds one number."""
    return (leaf.numel() if isinstance(leaf, torch.Tensor) else leaf.size) == 1


def number(name: str, value: Any) -> float:
    """The value of a metric.

    Raises
    ------
    TypeError
        If it is not one number.
    """
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"metric {name!r} must be a number or a tensor of one element; got "
            f"{type(value).__name__}"
        ) from None
