import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import reprolab as rl
from reprolab.diagnosis.straggling import Cause

SCRIPT = Path(__file__).with_name("slow_training.py")
RANKS, SLOW = 3, 1

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", params=["forward", "data"])
def run(request, tmp_path_factory):
    lab = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(lab), request.param, str(SLOW)],
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stderr=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in processes:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said.decode()
    finally:
        for process in processes:
            process.kill()
    return request.param, lab / request.param


def test_a_rank_that_really_works_more_is_found(run):
    kind, path = run
    found = rl.stragglers(path)
    assert found.late[0] == SLOW
    assert found.cause is (Cause.COMPUTE if kind == "forward" else Cause.DATA)
    row = found.rows["episodes"].filter(rank=SLOW).row(0, named=True)
    assert row["first_step"] == pytest.approx(12, abs=3)
    # The record tells which samples it had at the time.
    batches = found.rows["batches"]
    assert batches.filter(rank=SLOW, step=row["first_step"]).height == 1
    assert batches["ids"].str.len_chars().min() > 2
    assert rl.stragglers(rl.open_run(path)).headline == found.headline
