"""Stages that can have made a difference, from what was compared and agreed before it."""

import pytest

from reprolab.comparison.causality import (
    BACKWARD,
    CLIPPING,
    DATA,
    DRAWS,
    FORWARD,
    REDUCTION,
    STAGES,
    UPDATE,
    WORDS,
    origin,
    where,
)
from reprolab.vocabulary import EVENT_STREAMS, STREAMS


def before(stream):
    return STREAMS[: STREAMS.index(stream)]


@pytest.mark.parametrize(
    ("stream", "stages"),
    [
        ("batch", (DATA,)),
        ("loss", (FORWARD,)),
        ("grads_local", (BACKWARD,)),
        ("grads", (REDUCTION,)),
        ("grads_used", (CLIPPING,)),
        ("rng", (DRAWS,)),
        ("buffers", (FORWARD,)),
        ("params", (UPDATE,)),
        ("optimizer", (UPDATE,)),
    ],
)
def test_with_everything_recorded_one_stage_remains(stream, stages):
    found = origin(stream, 5, 4, before(stream), STREAMS)
    assert found.stages == stages
    assert not found.unknown
    assert found.during == ((5, 5) if stream in EVENT_STREAMS else (4, 4))


def test_without_local_gradients_the_backward_pass_cannot_be_told_from_the_reduction():
    here = [stream for stream in before("grads") if stream != "grads_local"]
    assert origin("grads", 5, 4, here, STREAMS).stages == (BACKWARD, REDUCTION)


def test_what_was_not_compared_is_not_ruled_out():
    here = [stream for stream in before("loss") if stream not in ("rng", "batch")]
    found = origin("loss", 5, 4, here, STREAMS)
    assert found.stages == (DATA, FORWARD)
    assert found.unknown == ("rng",)


def test_only_gradients_recorded_leave_every_stage_and_input_open():
    found = origin("grads", 5, 4, (), ())
    assert found.stages == (DATA, FORWARD, BACKWARD, REDUCTION)
    assert found.unknown == ("rng", "params", "buffers")


def test_a_state_that_differs_at_once_was_made_by_no_stage():
    found = origin("params", 0, None, (), ())
    assert found.during is None
    assert where(found, "params") == "from the start: the parameters"


def test_steps_that_were_not_recorded_leave_a_range():
    found = origin("params", 10, 5, before("params"), STREAMS)
    assert found.during == (5, 9)
    assert where(found, "params") == "between steps 5 and 10"


def test_every_stream_has_words_and_every_event_a_stage():
    assert set(WORDS) == set(STREAMS)
    assert set(STAGES) == set(EVENT_STREAMS) - {"activations"}
