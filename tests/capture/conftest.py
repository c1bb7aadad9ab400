"""A small training to record."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import reprolab as rl


@pytest.fixture(autouse=True)
def generators():
    """Tests draw from torch's generator; leave it as it was."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.set_rng_state(state)


@pytest.fixture
def small(tmp_path):
    """A model of two layers with all that a loop needs; ``small.train(rec, n)`` makes n steps."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def record(run="run", **more):
        return rl.record(tmp_path / "lab", run=run, model=model, optimizer=optimizer, **more)

    def train(rec, steps=1):
        for _ in range(steps):
            x, y = torch.randn(6, 4), torch.randint(2, (6,))
            rec.batch((x, y))
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            rec.step(loss=loss)

    def opened(run="run"):
        return rl.open_run(tmp_path / "lab" / run)

    return SimpleNamespace(
        model=model, optimizer=optimizer, record=record, train=train, opened=opened
    )


@pytest.fixture
def script(tmp_path):
    """Run a Python script in a process of its own, with reprolab importable; its output."""

    def run(text, *arguments, timeout=120, check=True):
        path = tmp_path / "script.py"
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, str(path), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        if check:
            assert done.returncode == 0, done.stderr[-4000:]
        return done

    return run
