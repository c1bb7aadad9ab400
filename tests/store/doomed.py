"""A process of a training that is going to be killed: ``python doomed.py LAB RANK WORLD MODE``."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from reprolab.errors import CheckpointFailed
from reprolab.kernels import Fingerprint
from reprolab.policy import Policy
from reprolab.store import begin_run, chunks, durable, saving
from reprolab.vocabulary import LANES, MOMENTS, Layout, TensorSpec

sys.path.insert(0, str(Path(__file__).parent))
from meeting import FileMeeting

SPEC = TensorSpec("w", "float32", (1500, 1000))
LAYOUT = Layout((TensorSpec("w", "uint8", (1 << 16,)),), 1 << 10)


def weights(step):
    return np.full(SPEC.shape, step, np.float32)


def rows(step):
    count = LAYOUT.rows
    return Fingerprint(
        np.full(count, step, np.uint64),
        np.full((count, len(MOMENTS)), float(step)),
        np.full((count, LANES), float(step)),
    )


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(point):
    """Die within the save of step 2 instead of, or right after, one operation."""
    if point == "write":
        whole = chunks.write_chunk

        def half(path, data, size, **others):
            whole(path, data[: len(data) // 2], size // 2, **others)
            die()

        chunks.write_chunk = half
    elif point == "written":
        chunks.sync_all = die
    elif point == "commit":
        saving.publish_file = die
    elif point == "link":
        durable.os.link = die
    elif point == "committed":
        durable.sync_folder = die
        chunks.sync_all = lambda names: None
        saving.sync_folder = lambda folder: None


def main(lab, rank, world, mode):
    rank, world = int(rank), int(world)
    writer = begin_run(
        Path(lab) / "lab",
        "run",
        rendezvous=FileMeeting(Path(lab) / "meeting", rank, world),
        config={},
        mesh={"dp": world},
        policy=Policy(),
        environment={},
        code={},
        timeout=3.0,
    )
    for step in range(1_000_000):
        if mode == "journal":
            writer.fact("metric", step, name="loss", value=step)
            writer.fingerprint(step, "params", LAYOUT, rows(step))
            writer.flush()
        else:
            if step == 2 and mode != "checkpoint":
                kill_at(mode)
            try:
                writer.checkpoint(step, {"params": [(SPEC, weights(step))]})
            except CheckpointFailed as error:
                print("failed", step, error, flush=True)
                return
        print("did", step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
