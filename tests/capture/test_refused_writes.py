"""A disk that refuses: the operating system's own limit on file sizes stands in for a full one."""

import time
from pathlib import Path

import pytest

import reprolab as rl

TRAINING = """
import os, resource, signal, sys, warnings
import torch, torch.distributed as dist
import reprolab as rl
sys.path.insert(0, sys.argv[1])
import oracle
from reprolab.errors import CheckpointFailed, RecordingFailed

out, world, policy, what = sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def say(*words):
    # In one piece: the lines of two ranks must not mingle.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def train(rank):
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 600)
    raw = model
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    every = None if what == "ledger" else 2
    refused = 0 if what == "checkpoint" else world - 1
    settings = rl.Policy(on_write_error=policy, checkpoint_every=every, rank_timeout=30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rl.record(out, run="run", model=model, optimizer=optimizer, policy=settings) as rec:
            for step in range(6):
                x = torch.randn(8, 64)
                rec.batch(x)
                loss = model(x).pow(2).mean()
                loss.backward(); optimizer.step(); optimizer.zero_grad()
                if step == 3 and rank == refused:
                    # A checkpoint's chunk is larger than a journal so far, so this stops either.
                    limit(100_000 if what == "checkpoint" else 1)
                try:
                    rec.step(loss=loss)
                except (RecordingFailed, CheckpointFailed) as error:
                    limit(resource.RLIM_INFINITY)
                    say(rank, "raised", type(error).__name__, step, rec.step_index)
                    raise
            say(rank, "trained", step, rec.step_index)
    say(rank, "left", len(raw._forward_hooks), len(caught))
    for item in caught:
        say(rank, "warned", item.message)

oracle.on_ranks(world, train)
"""


def run(script, tmp_path, world, policy, what):
    done = script(TRAINING, Path(__file__).parent, tmp_path / "lab", world, policy, what)
    return done.stdout, done.stderr


@pytest.mark.processes
def test_stop_raises_out_of_the_loop(script, tmp_path):
    output, errors = run(script, tmp_path, 1, "stop", "ledger")
    assert "0 raised RecordingFailed 3 3" in output
    assert "RecordingFailed: [" in errors
    assert "run run, step 3" in errors
    kept = rl.open_run(tmp_path / "lab" / "run").fingerprints(0)
    assert list(kept.steps("grads")) == [0, 1, 2]


@pytest.mark.processes
def test_warn_lets_the_training_go_on(script, tmp_path):
    output, _ = run(script, tmp_path, 1, "warn", "ledger")
    assert "0 trained 5 6" in output
    assert "0 left 0 1" in output
    assert "warned recording of run 'run' stopped at step 3" in output
    kept = rl.open_run(tmp_path / "lab" / "run").fingerprints(0)
    assert list(kept.steps("grads")) == [0, 1, 2]


@pytest.mark.processes
@pytest.mark.parametrize("world", [1, 2])
def test_a_checkpoint_that_does_not_fit_leaves_the_earlier_ones(script, tmp_path, world):
    output, _ = run(script, tmp_path, world, "warn", "checkpoint")
    for rank in range(world):
        assert f"{rank} trained 5 6" in output
        assert f"{rank} left 0 1" in output
    recorded = rl.open_run(tmp_path / "lab" / "run")
    assert recorded.checkpoints == [0, 2]
    assert not recorded.checkpoint(2).verify()
    assert list(recorded.fingerprints(0).steps("grads")) == [0, 1, 2, 3]


@pytest.mark.processes
def test_a_rank_that_stopped_recording_does_not_keep_the_others_waiting(script, tmp_path):
    began = time.monotonic()
    output, _ = run(script, tmp_path, 2, "warn", "both")
    assert time.monotonic() - began < 25  # The ranks would wait for each other for 30 s.
    assert "1 warned recording of run 'run' stopped at step 3" in output
    assert "0 warned recording of run 'run' stopped at step 3" in output
    assert "stopped recording: " in output
    assert "0 trained 5 6" in output
    assert "1 trained 5 6" in output
    kept = rl.open_run(tmp_path / "lab" / "run")
    assert list(kept.fingerprints(0).steps("grads")) == [0, 1, 2, 3]
    assert list(kept.fingerprints(1).steps("grads")) == [0, 1, 2]
    assert kept.checkpoints == [0, 2]
