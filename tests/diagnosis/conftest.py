import dataclasses
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reprolab.diagnosis.straggling.groups import with_groups
from reprolab.diagnosis.straggling.phases import _spread
from reprolab.diagnosis.straggling.pipeline import pipeline_graph
from reprolab.diagnosis.straggling.timing import time
from reprolab.kernels.replay import replay
from reprolab.tables.operations import OPERATIONS, PHASES

MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")


def pipeline_operations(dp=2, stages=3, microbatches=4, steps=6, *, seconds, clock=None):
    """Operations of a training in a pipeline, as its ranks would have recorded them.

    ``seconds(operation, dp, stage, microbatch, step)`` is how long each takes by itself; waiting
    comes from the replay. ``clock(rank, time)`` is what a rank's clock shows.
    """
    last = stages - 1
    rows = []
    for replica in range(dp):
        for stage in range(stages):
            own = {
                "params-all-gather": 1,
                "forward-compute": microbatches,
                "backward-compute": microbatches,
                "layernorm-grads-all-reduce": 1,
                "grads-reduce-scatter": 1,
                "optimizer-clip-main-grad": 1,
                "optimizer": 1,
            }
            own |= dict.fromkeys(MESSAGES, microbatches)
            if stage in (0, last):
                own["embedding-grads-all-reduce"] = 1
            rows += [
                (stage * dp + replica, step, name, None, 1.0, number, replica, stage)
                for name, number in own.items()
                for step in range(steps)
            ]
    phases = pl.DataFrame(rows, list(PHASES), orient="row").with_columns(
        pl.when(pl.col("phase").str.contains("send"))
        .then(pl.lit("send"))
        .when(pl.col("phase").str.contains("recv"))
        .then(pl.lit("recv"))
        .when(pl.col("phase").str.contains("compute|^optimizer$"))
        .then(pl.lit("work"))
        .otherwise(pl.lit("barrier"))
        .alias("role")
    )
    skeleton = with_groups(_spread(phases.cast(PHASES)))
    graph = pipeline_graph(skeleton)
    nodes = graph.nodes
    order = time(graph, skeleton, synchronised=False)
    own = np.array(
        [
            [seconds(name, replica, stage, micro, step) for step in range(steps)]
            for name, replica, stage, micro in nodes.select(
                "operation", "dp", "stage", "sequence"
            ).iter_rows()
        ]
    )
    starts, ends = replay(graph.schedule, own)
    frames = []
    for step in range(steps):
        shift = 100.0 * step
        frames.append(
            nodes.select("rank", "operation", "role", "sequence", "dp", "stage", "microbatch")
            .with_columns(
                pl.lit(step, pl.Int64).alias("step"),
                pl.Series("start", shift + starts[:, step]),
                pl.Series("duration", ends[:, step] - starts[:, step]),
                pl.when(pl.col("operation").is_in(MESSAGES)).then(None).otherwise(0).alias("part"),
                pl.lit(None).alias("group"),
                pl.lit(None).alias("tokens"),
                pl.lit(None).alias("bytes"),
            )
            .select(list(OPERATIONS))
            .cast(OPERATIONS)
        )
    assert len(order.steps) == steps
    found = pl.concat(frames)
    if clock is not None:
        rank = found["rank"].to_numpy()
        start, duration = found["start"].to_numpy(), found["duration"].to_numpy()
        begin, end = clock(rank, start), clock(rank, start + duration)
        found = found.with_columns(pl.Series("start", begin), pl.Series("duration", end - begin))
    return found.sort("rank", "step", "start"), ends.max(axis=0)


def plain(name, replica=0, stage=0, microbatch=0, step=0):
    """Seconds of operations that all take equally long."""
    if "compute" in name:
        return 0.100 if name.startswith("forward") else 0.200
    return {"optimizer": 0.020}.get(name, 0.002 if name not in MESSAGES else 0.001)


@pytest.fixture(scope="session")
def pipeline():
    return pipeline_operations


@pytest.fixture(scope="session")
def even():
    return plain


@pytest.fixture(scope="session")
def slowed():
    """A model with some of its operations made to take another share of their time."""

    def change(model, nodes, steps, factor):
        own = model.timing.own.copy()
        own[np.ix_(np.flatnonzero(nodes), steps)] *= factor
        timing = dataclasses.replace(model.timing, own=own)
        return dataclasses.replace(model, timing=timing)

    return change


@pytest.fixture(scope="session")
def published():
    """The folder of published traces with known answers."""
    if "REPROLAB_TRACES" not in os.environ:
        pytest.skip("REPROLAB_TRACES does not name a folder with straggler/trace-*.parquet")
    folder = Path(os.environ["REPROLAB_TRACES"]) / "straggler"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder
