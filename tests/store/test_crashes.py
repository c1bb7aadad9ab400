"""Real processes, really killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from reprolab.errors import StepNotCommitted
from reprolab.store import Alone, begin_attempt, open_run, paths

DOOMED = Path(__file__).with_name("doomed.py")


@pytest.fixture
def start(tmp_path):
    """Start the processes of a run; whatever is left of them in the end is killed."""
    started = []

    def run(*modes):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        for rank, mode in enumerate(modes):
            started.append(
                subprocess.Popen(
                    [sys.executable, DOOMED, tmp_path, str(rank), str(len(modes)), mode],
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        return started

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def said(process):
    """Everything that a dead process said, as steps done and what failed."""
    lines = process.stdout.read().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("did")], [
        line for line in lines if line.startswith("failed")
    ]


def wait_for(process, step):
    for line in process.stdout:
        if line == f"did {step}\n":
            return
    raise AssertionError("the process ended too early")


@pytest.mark.parametrize("moment", [0.0, 0.004, 0.013])
def test_a_process_killed_while_it_records_loses_nothing_it_flushed(start, tmp_path, moment):
    (process,) = start("journal")
    wait_for(process, 40)
    time.sleep(moment)
    process.kill()
    process.wait()
    done, _ = said(process)
    last = max(done, default=40)
    run = open_run(tmp_path / "lab" / "run")
    facts = [fact["value"] for fact in run.facts()]
    assert facts == list(range(len(facts)))
    assert len(facts) in (last + 1, last + 2)
    reader = run.fingerprints(0)
    steps = reader.steps("params").tolist()
    assert steps == list(range(len(steps)))
    assert len(steps) in (last + 1, last + 2)
    for step in (0, 7, last):
        assert (reader.fingerprint("params", step).sketch == step).all()


def check_after_crash(tmp_path, committed):
    """What was committed is whole, the rest is invisible, and another attempt goes on."""
    run = open_run(tmp_path / "lab" / "run")
    assert run.checkpoints == committed
    for step in committed:
        assert run.checkpoint(step).verify() == []
        assert (run.checkpoint(step).read("params", "w") == step).all()
    missing = max(committed, default=-1) + 1
    with pytest.raises(StepNotCommitted):
        run.checkpoint(missing)
    writer = begin_attempt(
        tmp_path / "lab", "run", rendezvous=Alone(), mesh={}, environment={}, code={}
    )
    assert sorted(step for step, _ in paths.checkpoint_folders(run.path)) == committed
    spec, values = (
        run.checkpoint(committed[0]).layout("params").tensors[0],
        np.zeros(1_500_000, "f4"),
    )
    writer.checkpoint(missing, {"params": [(spec, values)]})
    writer.close()
    assert run.checkpoints == [*committed, missing]
    assert run.checkpoint(missing).verify() == []


@pytest.mark.parametrize(
    ("sick", "point", "committed"),
    [
        (1, "write", [0, 1]),
        (0, "write", [0, 1]),
        (1, "written", [0, 1]),
        (0, "commit", [0, 1]),
        (0, "link", [0, 1]),
        (0, "committed", [0, 1, 2]),
    ],
)
def test_a_rank_killed_within_a_checkpoint(start, tmp_path, sick, point, committed):
    modes = ["checkpoint", "checkpoint"]
    modes[sick] = point
    processes = start(*modes)
    for process in processes:
        process.wait(timeout=60)
    assert processes[sick].returncode == -9
    done, failures = said(processes[1 - sick])
    assert done == [0, 1]
    assert len(failures) == 1
    assert f"rank [{sick}]" in failures[0]
    check_after_crash(tmp_path, committed)


@pytest.mark.parametrize("moment", [0.0, 0.007, 0.019])
def test_all_ranks_killed_at_any_moment(start, tmp_path, moment):
    processes = start("checkpoint", "checkpoint")
    wait_for(processes[0], 3)
    time.sleep(moment)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
    done = max(3, *(max(said(process)[0], default=0) for process in processes))
    steps = open_run(tmp_path / "lab" / "run").checkpoints
    assert steps == list(range(len(steps)))
    assert len(steps) in (done + 1, done + 2)
    check_after_crash(tmp_path, steps)
