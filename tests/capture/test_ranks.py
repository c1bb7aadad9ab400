"""Ranks that do not do the same: nobody waits in vain, and each says what is wrong."""

from pathlib import Path

import pytest

import reprolab as rl

TRAINING = """
import os, sys, time
import torch
import reprolab as rl
sys.path.insert(0, sys.argv[1])
import oracle
from reprolab.errors import ReprolabError

lab, what = sys.argv[2:]

def say(*words):
    # In one piece: the lines of two ranks must not mingle.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def train(rank):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    parameters = list(model.parameters())
    if what == "begin" and rank == 1:
        parameters.append(torch.nn.Parameter(torch.zeros(3)))
    optimizer = torch.optim.SGD(parameters, 0.1)
    policy = rl.Policy(checkpoint_every=2, rank_timeout=60)
    for attempt in range(2):
        began = time.monotonic()
        try:
            with rl.record(lab, run=f"run{attempt}", model=model, optimizer=optimizer,
                           policy=policy) as rec:
                for step in range(4):
                    x = torch.randn(2, 4)
                    rec.batch(x)
                    loss = model(x).pow(2).mean()
                    loss.backward(); optimizer.step(); optimizer.zero_grad()
                    if what == "midway" and rank == 1 and step == 1 and attempt == 0:
                        raise ValueError("of the user")
                    rec.step(loss=loss)
                say(rank, attempt, "trained")
        except (ReprolabError, ValueError) as error:
            say(rank, attempt, type(error).__name__, error)
        assert time.monotonic() - began < 30
        if what == "begin" and rank == 1 and attempt == 0:
            optimizer.param_groups[0]["params"].pop()

assert oracle.on_ranks(2, train)
"""


def run(script, tmp_path, what):
    output = script(TRAINING, Path(__file__).parent, tmp_path / "lab", what).stdout
    return {
        tuple(map(int, line.split()[:2])): line.split(maxsplit=2)[2] for line in output.splitlines()
    }


@pytest.mark.processes
def test_a_rank_that_cannot_begin_stops_the_others_at_once(script, tmp_path):
    said = run(script, tmp_path, "begin")
    assert said[1, 0].startswith("UnsupportedTraining [run run0, rank 1] parameter 2 of")
    expected = "RankTimeout [run run0, rank 1] stopped recording: UnsupportedTraining at"
    assert said[0, 0].startswith(expected)
    assert said[0, 1] == said[1, 1] == "trained"
    assert rl.open_lab(tmp_path / "lab").names() == ["run1"]


@pytest.mark.processes
def test_a_rank_whose_training_ends_stops_the_next_checkpoint_at_once(script, tmp_path):
    said = run(script, tmp_path, "midway")
    assert said[1, 0] == "ValueError of the user"
    assert said[0, 0].startswith("CheckpointFailed")
    assert "stopped recording: ValueError at script.py:" in said[0, 0]
    assert said[0, 1] == said[1, 1] == "trained"
    lab = rl.open_lab(tmp_path / "lab")
    assert lab["run0"].checkpoints == [0]
    assert lab["run1"].checkpoints == [0, 2, 4]
