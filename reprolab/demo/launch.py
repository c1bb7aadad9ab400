"""Start the processes of a demo training and see them through."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

from tqdm.auto import tqdm

from reprolab.demo.faults import FAULTS
from reprolab.demo.settings import Settings
from reprolab.errors import ReprolabError

GRACE = 60.0
"""Seconds the other ranks get to finish after one has failed or rank 0 is done."""


def train(settings: Settings, world_size: int = 4, *, progress: bool = True) -> Path:
    """Run one training on `world_size` real processes and wait for it.

    Parameters
    ----------
    settings : Settings
        What to train and where to record it.
    world_size : int
        Number of gloo processes.
    progress : bool
        Show a progress bar.

    Returns
    -------
    pathlib.Path
        The run's folder.

    Raises
    ------
    ReprolabError
        If a process fails; the message ends with what it printed.
    """
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1; got {world_size}")
    port = _free_port()
    with ExitStack() as stack:
        complaints = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(world_size)]
        ranks = [
            _start(settings, rank, world_size, port, complaints[rank]) for rank in range(world_size)
        ]
        stack.callback(_stop, ranks)
        _follow(ranks[0], settings, progress)
        _wait(ranks)
        failed = [rank for rank, process in enumerate(ranks) if process.poll() != 0]
        if failed:
            said = "\n".join(_complaint(rank, ranks[rank], complaints[rank]) for rank in failed)
            raise ReprolabError(f"the demo training failed\n{said}", run=settings.run)
    return Path(settings.lab) / settings.run


def train_pair(
    lab: str | os.PathLike[str],
    fault: str = "reduction-order",
    *,
    world_size: int = 4,
    progress: bool = True,
    **changes: object,
) -> tuple[Path, Path]:
    """Train twice with the same seed; the second time one thing is different.

    Parameters
    ----------
    lab : path
        The lab to record into, as runs ``first`` and ``second``.
    fault : str
        What is different: a key of :data:`FAULTS`.
    world_size : int
        Number of gloo processes.
    progress : bool
        Show a progress bar for each training.
    **changes : object
        Settings for both trainings, for example ``steps=20``.

    Returns
    -------
    tuple of pathlib.Path
        The folders of the two runs.
    """
    if fault not in FAULTS:
        raise ValueError(f"fault must be one of {', '.join(FAULTS)}; got {fault!r}")
    changed: Mapping[str, object] = FAULTS[fault][1]
    first = Settings(lab=os.fspath(lab), run="first", **changes)  # type: ignore[arg-type]
    second = replace(first, run="second", **changed)  # type: ignore[arg-type]
    return (
        train(first, world_size, progress=progress),
        train(second, world_size, progress=progress),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    settings: Settings, rank: int, world_size: int, port: int, complaints: IO[bytes]
) -> subprocess.Popen[str]:
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "reprolab.demo.worker"],
        env={**os.environ, **{key: str(value) for key, value in place.items()}},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        stderr=complaints,
        text=True,
    )
    assert process.stdin is not None  # noqa: S101
    process.stdin.write(settings.to_json() + "\n")
    process.stdin.close()
    return process


def _follow(leader: subprocess.Popen[str], settings: Settings, progress: bool) -> None:
    assert leader.stdout is not None  # noqa: S101
    with tqdm(total=settings.steps, desc=settings.run, unit="step", disable=not progress) as bar:
        for line in leader.stdout:
            if line.startswith("step "):
                bar.set_postfix_str(f"loss {line.split()[2]}", refresh=False)
                bar.update()


def _wait(ranks: list[subprocess.Popen[str]]) -> None:
    """Wait until all ranks end, or until one has failed and the others had their chance."""
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        if all(process.poll() is not None for process in ranks):
            return
        time.sleep(0.05)


def _complaint(rank: int, process: subprocess.Popen[str], complaints: IO[bytes]) -> str:
    complaints.seek(0)
    said = complaints.read().decode(errors="replace").strip()[-2000:] or "nothing"
    ended = "did not end" if process.poll() is None else f"ended with exit code {process.poll()}"
    return f"rank {rank} {ended} and said:\n{said}"


def _stop(ranks: list[subprocess.Popen[str]]) -> None:
    for process in ranks:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
