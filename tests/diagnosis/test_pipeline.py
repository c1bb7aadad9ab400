import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.diagnosis.straggling.pipeline import pipeline_graph


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (3, 4), (4, 8)])
def test_an_even_pipeline_takes_as_long_as_theory_says(pipeline, stages, microbatches):
    """Without transfers, (microbatches + stages - 1) forwards and backwards."""

    def seconds(name, *_):
        return {"forward-compute": 1.0, "backward-compute": 2.0}.get(name, 0.0)

    frame, _ = pipeline(stages=stages, microbatches=microbatches, steps=2, seconds=seconds)
    model = lay_out(frame).model
    expected = (microbatches + stages - 1) * 3.0
    np.testing.assert_allclose(model.actual, expected)
    assert model.slowdown == pytest.approx(1.0)


def test_own_times_come_back(pipeline, even):
    frame, span = pipeline(seconds=even)
    layout = lay_out(frame)
    assert layout.kind == "pipeline"
    model = layout.model
    nodes = model.graph.nodes
    expected = [even(name) for name in nodes["operation"].to_list()]
    np.testing.assert_allclose(model.timing.own, np.array(expected)[:, None] + 0 * span, atol=1e-9)
    np.testing.assert_allclose(model.timing.span, span)


def test_waiting_is_not_own_time(pipeline, even):
    def seconds(name, replica, stage, microbatch, step):
        slow = 2.0 if (replica, stage) == (1, 1) and "compute" in name else 1.0
        return slow * even(name)

    frame, _ = pipeline(seconds=seconds)
    waiting = frame.filter(pl.col("operation") == "grads-reduce-scatter")["duration"].max()
    assert waiting > 0.5
    model = lay_out(frame).model
    reduced = (model.graph.nodes["operation"] == "grads-reduce-scatter").to_numpy()
    np.testing.assert_allclose(model.timing.own[reduced], even("grads-reduce-scatter"), atol=1e-9)


def test_all_ranks_meet_at_clipping_and_replicas_at_reductions(pipeline, even):
    frame, _ = pipeline(dp=3, stages=2, seconds=even, steps=1)
    graph = pipeline_graph(frame)
    size = dict(zip(graph.nodes["operation"].to_list(), graph.size.tolist(), strict=True))
    assert size["optimizer-clip-main-grad"] == 6
    assert size["grads-reduce-scatter"] == size["params-all-gather"] == 3
    assert size["embedding-grads-all-reduce"] == size["forward-send"] == size["backward-recv"] == 2
    assert size["forward-compute"] == size["layernorm-grads-all-reduce"] == 1


def test_messages_that_never_left_are_ignored(pipeline, even):
    """Recorders also note a receive on the first stage, after all computation, and its like."""
    frame, _ = pipeline(seconds=even)
    ghosts = (
        frame.filter(pl.col("stage") == 0, pl.col("operation") == "optimizer")
        .with_columns(
            pl.lit("forward-recv").alias("operation"),
            pl.lit("recv").alias("role"),
            pl.lit(None, pl.Int32).alias("part"),
        )
        .with_columns(pl.lit(0.0).alias("duration"))
    )
    model = lay_out(pl.concat([frame, ghosts])).model
    np.testing.assert_allclose(model.actual, lay_out(frame).model.actual)


def test_messages_that_do_not_fit_are_said(pipeline, even):
    frame, _ = pipeline(seconds=even)
    broken = frame.filter(
        ~(
            (pl.col("operation") == "forward-send")
            & (pl.col("sequence") == 1)
            & (pl.col("stage") == 0)
        )
    )
    with pytest.raises(ValueError, match="sends 3 forward messages, stage 1 receives 4"):
        pipeline_graph(broken)
    layout = lay_out(broken)
    assert layout.kind == "serial"
    assert "look like a pipeline" in layout.notes[0]
