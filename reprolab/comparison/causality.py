"""What makes each stream out of which: where a difference can have come from, and where not.

Within a step every stream is made from those before it; the state of the next step is made by the
last stages of this one::

    batch <- data        loss <- forward          grads_local <- backward
    grads <- reduction   grads_used <- clipping   params, optimizer (next step) <- update

The first difference in causal order has only agreeing streams before it. So it was made by the
stages between the last stream that was compared before it and itself, and by nothing else, unless
something that goes into them was not compared.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reprolab.vocabulary import STATE_STREAMS, STREAMS

DATA = "the loading of the data"
FORWARD = "the forward pass"
BACKWARD = "the backward pass"
REDUCTION = "the reduction of the gradients between the ranks"
CLIPPING = "the unscaling or clipping of the gradients"
UPDATE = "the update of the parameters"
DRAWS = "the drawing of random numbers"

STAGES: dict[str, str] = {
    "batch": DATA,
    "loss": FORWARD,
    "grads_local": BACKWARD,
    "grads": REDUCTION,
    "grads_used": CLIPPING,
}
"""For each event stream: the stage that makes it, in the order they run."""

WORDS = {
    "rng": "the states of the random generators",
    "params": "the parameters",
    "buffers": "the buffers",
    "optimizer": "the state of the optimizer",
    "batch": "the batches",
    "activations": "the activations",
    "loss": "the losses",
    "grads_local": "the local gradients",
    "grads": "the reduced gradients",
    "grads_used": "the gradients that the optimizer used",
}
"""How a stream is spoken of."""

_MODEL = ("rng", "params", "buffers", "batch")
_INPUTS: dict[str, tuple[str, ...]] = {
    DATA: ("rng",),
    FORWARD: _MODEL,
    BACKWARD: _MODEL,
    REDUCTION: (),
    CLIPPING: (),
    UPDATE: ("params", "optimizer"),
    DRAWS: (),
}
"""Streams that go into a stage besides the outcome of the stage before it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a first difference can have been made."""

    stages: tuple[str, ...]
    """The stages that remain, in the order they run; several where the streams between them were
    not compared. None where the difference is there from the start."""
    unknown: tuple[str, ...]
    """Streams that go into these stages and were not compared."""
    during: tuple[int, int] | None
    """First and last step in which it can have been made; None where it is there from the
    start."""


def origin(
    stream: str, step: int, before: int | None, here: Collection[str], earlier: Collection[str]
) -> Origin:
    """Narrow down the stages that made the first difference.

    Parameters
    ----------
    stream : str
        Stream of the first difference.
    step : int
        Its step.
    before : int or None
        The last step before it that was compared, where everything agreed; None if there is none.
    here : collection of str
        Streams compared at this step on every rank concerned.
    earlier : collection of str
        Streams compared at the step `before` on every rank concerned.

    Examples
    --------
    >>> origin("grads", 3, 2, STREAMS, STREAMS).stages == (REDUCTION,)
    True
    >>> origin("params", 9, 4, STREAMS, STREAMS).during
    (4, 8)
    """
    if stream not in STATE_STREAMS:
        stages = _since(stream, here)
        return Origin(stages, _unknown(stages, here), (step, step))
    if before is None:
        return Origin((), (), None)
    if before != step - 1:
        return Origin((), (), (before, step - 1))
    if stream == "rng":
        stages = (DRAWS,)
    elif stream == "buffers":
        stages = (FORWARD,)
    else:
        stages = (*_since(None, earlier), UPDATE)
    return Origin(stages, _unknown(stages, earlier), (before, before))


def _since(stream: str | None, compared: Collection[str]) -> tuple[str, ...]:
    """Stages that run after the last stream compared, up to the one that makes `stream`."""
    events = list(STAGES)
    made = events.index(stream) + 1 if stream in STAGES else len(events)
    last = max(
        (i for i in range(made) if events[i] in compared and events[i] != stream), default=-1
    )
    return tuple(STAGES[event] for event in events[last + 1 : made])


def _unknown(stages: tuple[str, ...], compared: Collection[str]) -> tuple[str, ...]:
    made = {event for event, stage in STAGES.items() if stage in stages}
    inputs = {name for stage in stages for name in _INPUTS[stage]} - made
    return tuple(name for name in STREAMS if name in inputs and name not in compared)


def where(found: Origin, stream: str) -> str:
    """In a few words, where in a step the sides part."""
    if found.during is None:
        return f"from the start: {WORDS[stream]}"
    low, high = found.during
    if not found.stages:
        return f"between steps {low} and {high + 1}"
    seen = "" if not found.unknown else ", or in what was not compared before it"
    return f"{', or '.join(found.stages)}, in step {low}{seen}"
