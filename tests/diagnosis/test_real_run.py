import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import reprolab as rl

SCRIPT = Path(__file__).with_name("slow_training.py")
RANKS = 3

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        os.getloadavg()[0] > 3 * (os.cpu_count() or 1),
        reason="this machine is so busy with other work that every rank is late",
    ),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    lab = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(lab)],
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
    return lab / "slow"


def test_ranks_that_really_work_more_are_found(run):
    found = rl.stragglers(run)
    assert set(found.late) == {1, 2}
    families = dict(found.rows["culprits"].select("rank", "family").iter_rows())
    assert families == {1: "compute", 2: "data loading"}
    lasting = found.rows["episodes"].filter(kind="persistent")
    assert set(lasting["rank"].to_list()) == {1, 2}
    for row in lasting.iter_rows(named=True):
        assert row["first_step"] == pytest.approx(12, abs=3)
    # The record tells which samples they had at the time, and what they used.
    batches = found.rows["batches"]
    assert batches.filter(rank=2, step=20)["ids"].str.len_chars().min() > 2
    assert found.rows["resources"].columns == ["attempt", "rank", "step", "name", "value"]
    assert rl.stragglers(rl.open_run(run)).headline == found.headline
