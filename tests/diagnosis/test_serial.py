import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling.layout import lay_out
from reprolab.errors import TraceError
from reprolab.tables.operations import conform
from reprolab.traces.synthetic import data_parallel


def frame(rows):
    """Rows are rank, step, operation, start, duration, group."""
    names = ("rank", "step", "operation", "start", "duration", "group")
    return conform(pl.DataFrame(rows, names, orient="row", infer_schema_length=None))[0]


def durations(layout):
    nodes = layout.model.graph.nodes
    names = zip(*(nodes[c].to_list() for c in ("rank", "operation", "sequence")), strict=True)
    return dict(zip(names, layout.model.timing.duration[:, 0].round(9).tolist(), strict=True))


def test_a_ranks_times_add_up_to_its_step():
    trace = data_parallel(4, 30, seed=3)
    layout = lay_out(trace)
    assert layout.kind == "serial"
    model = layout.model
    rank = model.graph.nodes["rank"].to_numpy()
    total = np.array([model.timing.duration[rank == one].sum(axis=0) for one in range(4)])
    ends = trace.with_columns(end=pl.col("start") + pl.col("duration"))
    last = ends.group_by("rank", "step").agg(pl.col("end").max()).sort("rank", "step")
    # A step runs from the end of the one before on this rank.
    taken = last["end"].to_numpy().reshape(4, 30)
    np.testing.assert_allclose(total[:, 1:], np.diff(taken, axis=1), atol=1e-9)


def test_overlapping_work_counts_once():
    layout = lay_out(
        frame(
            [
                (0, 0, "forward", 0.0, 3.0, None),
                (0, 0, "load", 1.0, 1.0, None),
                (0, 0, "backward", 2.0, 4.0, None),
                (0, 0, "all-reduce", 8.0, 1.0, "a"),
                (1, 0, "forward", 0.0, 7.0, None),
                (1, 0, "all-reduce", 7.0, 2.0, "a"),
            ]
        )
    )
    found = durations(layout)
    assert found[0, "forward", 0] == 3.0
    assert found[0, "load", 0] == 0.0
    assert found[0, "backward", 0] == 3.0
    assert found[0, "host", 0] == 2.0
    assert found[0, "all-reduce", 0] == 1.0
    assert (1, "host", 0) not in found


def test_coming_late_into_the_step_is_time_of_the_host():
    layout = lay_out(
        frame(
            [
                (0, 0, "compute", 0.0, 1.0, None),
                (0, 0, "all-reduce", 1.0, 5.0, "a"),
                (1, 0, "compute", 4.0, 1.0, None),
                (1, 0, "all-reduce", 5.0, 1.0, "a"),
            ]
        )
    )
    assert durations(layout)[1, "host", 0] == 4.0
    assert layout.model.actual.tolist() == [6.0]


def test_work_at_some_steps_only_is_there_at_every_step():
    trace = data_parallel(2, 20)
    checkpoint = trace.filter(
        pl.col("operation") == "optimizer", pl.col("step") % 5 == 0
    ).with_columns(
        pl.lit("checkpoint").alias("operation"),
        (pl.col("start") + pl.col("duration")).alias("start"),
        pl.lit(0.001).alias("duration"),
    )
    model = lay_out(pl.concat([trace, checkpoint])).model
    saved = model.timing.own[(model.graph.nodes["operation"] == "checkpoint").to_numpy()]
    assert (saved[:, ::5] > 0).all()
    assert (np.delete(saved, np.s_[::5], axis=1) == 0).all()


def test_steps_of_ranks_that_overlap_keep_their_length():
    """A rank that is already in the next step while others are not is not counted twice."""
    trace = data_parallel(2, 10).with_columns(
        pl.when(pl.col("step") == 4).then(pl.col("start") - 0.05).otherwise("start").alias("start")
    )
    model = lay_out(trace).model
    assert (model.timing.duration >= 0).all()
    assert len(model.timing.steps) == 10


def test_steps_that_lack_a_rank_are_left_out():
    trace = data_parallel(3, 10)
    holes = trace.filter(~((pl.col("rank") == 1) & pl.col("step").is_in([2, 7])))
    layout = lay_out(holes)
    assert layout.model.timing.steps.tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert "2 of 10 steps lack a rank" in layout.notes[0]
    assert layout.notes[0].endswith("2, 7.")


def test_a_rank_that_is_hardly_there_is_left_out():
    trace = data_parallel(3, 10)
    layout = lay_out(trace.filter((pl.col("rank") != 2) | (pl.col("step") < 3)))
    assert layout.model.graph.nodes["rank"].unique().sort().to_list() == [0, 1]
    assert len(layout.model.timing.steps) == 10
    assert "Rank 2 has records of less than half" in layout.notes[0]


def test_collectives_in_contradicting_orders_are_an_error():
    rows = [
        (0, 0, "all-reduce", 0.0, 1.0, "x"),
        (0, 0, "all-gather", 1.0, 1.0, "y"),
        (1, 0, "all-gather", 0.0, 1.0, "y"),
        (1, 0, "all-reduce", 1.0, 1.0, "x"),
    ]
    with pytest.raises(TraceError, match="different orders"):
        lay_out(frame(rows))


def test_no_step_in_common_is_an_error():
    rows = [(0, 0, "all-reduce", 0.0, 1.0, "x"), (1, 1, "all-reduce", 0.0, 1.0, "x")]
    with pytest.raises(TraceError, match="no step has records of all 2 ranks"):
        lay_out(frame(rows))
