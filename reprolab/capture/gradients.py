"""Gradients before and after the reduction, read without touching how DDP reduces them.

DDP's reducer takes the gradient of a parameter over in a hook that runs *after* the hooks of
``register_post_accumulate_grad_hook``, and puts the reduced gradients back in a callback at the
end of the backward pass. So this module needs no communication hook: it reads ``parameter.grad``

- in a post-accumulate hook: ``grads_local``, as this rank hands it to the reduction;
- in a callback queued behind DDP's at the end of the backward pass: ``grads``.

A communication hook would have to repeat the reducer's arithmetic bit for bit (it multiplies by
1/W where it copies into a bucket, but divides by W where the gradient already lives in the bucket;
the bits differ on 3 ranks), would exclude the user's own hook, and could never be taken off again.

```
backward ──┬─ accumulate p9 ─ read local ─ reducer copies p9 ─┐
           ├─ accumulate p8 ─ read local ─ reducer copies p8 ─┴─ all-reduce bucket ...
           └─ ...                                     span `reduce`: waiting for the last buckets
 callbacks: [ours: queue again] [DDP: wait, copy back] [ours, queued again: read all]
```
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch.autograd import Variable

from reprolab.capture.census import Census
from reprolab.capture.forward import ForwardTimer
from reprolab.capture.spans import Spans
from reprolab.capture.streams import real, spec
from reprolab.errors import ReprolabError, UnsupportedTraining
from reprolab.kernels import Fingerprint, fingerprint_stream
from reprolab.vocabulary import Layout


class GradientRows:
    """One gradient stream of the step in progress; tensors arrive one by one or together."""

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self.layout = layout
        self._singles = [Layout((tensor,), layout.block_bytes) for tensor in layout.tensors]
        self._rows = Fingerprint.zeros(layout.rows)
        self._present: set[int] = set()

    def read(self, position: int, gradient: torch.Tensor) -> None:
        """Read one tensor; what an earlier backward pass of this step left is replaced."""
        try:
            found = fingerprint_stream([real(gradient)], self._singles[position])
        except ReprolabError as problem:
            problem.at(stream=self.name)
            raise
        self._put(self.layout.rows_of(position), found)
        self._present.add(position)

    def read_all(self, gradients: list[torch.Tensor | None]) -> None:
        """Read the tensors that are there; the others keep what an earlier pass left."""
        tensors = [None if gradient is None else real(gradient) for gradient in gradients]
        try:
            found = fingerprint_stream(tensors, self.layout)
        except ReprolabError as problem:
            problem.at(stream=self.name)
            raise
        arrived = {position for position, tensor in enumerate(tensors) if tensor is not None}
        for position in self._present - arrived:
            rows = self.layout.rows_of(position)
            for new, old in _arrays(found, self._rows):
                new[rows] = old[rows]
        self._rows = found
        self._present |= arrived

    def take(self) -> Fingerprint:
        """The stream's fingerprint, absent tensors as zeros; starts afresh."""
        found, self._rows = self._rows, Fingerprint.zeros(self.layout.rows)
        self._present = set()
        return found

    def _put(self, rows: slice, found: Fingerprint) -> None:
        for whole, part in _arrays(self._rows, found):
            whole[rows] = part


def _arrays(a: Fingerprint, b: Fingerprint) -> tuple:
    return (a.digest, b.digest), (a.moments, b.moments), (a.sketch, b.sketch)


def gradient_layout(census: Census, block_bytes: int) -> Layout:
    """All parameters in backward order: the reverse of registration."""
    return Layout(
        tuple(
            spec(name, real(parameter), _gradient_dtype(parameter))
            for name, parameter in zip(census.names, census.parameters, strict=True)
        )[::-1],
        block_bytes,
    )


def _gradient_dtype(parameter: torch.Tensor) -> torch.dtype:
    # Newer versions of torch let gradients have a dtype of their own.
    dtype = getattr(parameter, "grad_dtype", None) or parameter.dtype
    return dtype.to_real() if dtype.is_complex else dtype


class GradientWatch:
    """Reads ``grads_local`` and ``grads``, times ``backward`` and ``reduce``.

    Parameters
    ----------
    census : Census
    local, reduced : GradientRows or None
        Where to read into; ``None`` where a stream is not wanted. The same object twice where
        nothing can be reduced, so that it is read once.
    reducing : bool
        Whether other ranks may contribute to the gradients.
    forward : ForwardTimer
    spans : Spans
    """

    def __init__(
        self,
        census: Census,
        local: GradientRows | None,
        reduced: GradientRows | None,
        *,
        reducing: bool,
        forward: ForwardTimer,
        spans: Spans,
    ) -> None:
        self._names = census.names[::-1]
        self._parameters = census.parameters[::-1]
        self._replicas = census.replicas[::-1]
        self._wrappers = {ddp for ddp in self._replicas if ddp is not None}
        self._local = None if local is reduced else local
        self._end = reduced
        self._reducing = reducing
        self._forward = forward
        self._spans = spans
        self._began: dict[int, float] = {}
        self._last = 0.0
        self._fired: set[int] = set()
        self._handles: dict[int, Any] = {}
        self.reading = True
        """Whether fingerprints are due in this step; time is taken in every step."""
        self.passes = 0
        """Backward passes in this step."""
        self.attend()

    def attend(self) -> None:
        """Hook every parameter that wants a gradient by now and is not hooked yet."""
        for position, parameter in enumerate(self._parameters):
            if parameter.requires_grad and position not in self._handles:
                self._handles[position] = parameter.register_post_accumulate_grad_hook(
                    self._hook(position)
                )

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self.reading = False

    def _hook(self, position: int) -> Callable[[torch.Tensor], None]:
        def accumulated(parameter: torch.Tensor) -> None:
            now = perf_counter()
            # Every backward pass is a graph task of its own, also one nested in another; their
            # numbers also tell a pass from one before that an exception broke off.
            task = torch._C._current_graph_task_id()
            if task not in self._began:
                self._began[task] = now
                # DDP queues its own callback in between, if it reduces in this pass.
                _at_the_end(lambda: _at_the_end(lambda: self._over(task)))
            if self.reading:
                self._read_local(position, parameter.grad)
            self._last = perf_counter()
            self._spans.own += self._last - now

        return accumulated

    def _read_local(self, position: int, gradient: torch.Tensor | None) -> None:
        if gradient is not None and gradient.layout != torch.strided:
            raise UnsupportedTraining(
                f"expected a dense gradient; got layout {gradient.layout}. Sparse gradients are "
                "not captured yet: build the embedding with sparse=False",
                tensor=self._names[position],
            )
        self._fired.add(position)
        if self._local is not None and gradient is not None:
            self._local.read(position, gradient)

    def _over(self, task: int) -> None:
        now = perf_counter()
        forward, first = self._forward, self._began.pop(task)
        starts = (forward.backward_began, forward.ended, first)
        began = next(start for start in starts if start is not None)
        self._spans.add("backward", min(began, first), self._last)
        if self._reducing and (
            not self._wrappers or any(ddp.require_backward_grad_sync for ddp in self._wrappers)
        ):
            self._spans.add("reduce", self._last, now)
        forward.backward_began = forward.ended = None
        self.passes += 1
        if self.reading and self._end is not None:
            self._end.read_all(self._arrived())
        self._fired.clear()
        self._spans.own += perf_counter() - now

    def _arrived(self) -> list[torch.Tensor | None]:
        """Gradients of this pass; a reduction also fills those that only other ranks computed."""
        touched = {self._replicas[position] for position in self._fired}
        if not self._reducing:
            touched.clear()
        return [
            parameter.grad if position in self._fired or replica in touched else None
            for position, (parameter, replica) in enumerate(
                zip(self._parameters, self._replicas, strict=True)
            )
        ]


def _at_the_end(callback: Callable[[], None]) -> None:
    """Have `callback` called when the backward pass in progress is over."""
    Variable._execution_engine.queue_callback(callback)
