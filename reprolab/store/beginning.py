"""Begins runs and attempts: the ranks meet, rank 0 makes the folders, all open their records."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from reprolab.errors import LabError, RunExists, RunNotFound
from reprolab.policy import Policy
from reprolab.store import paths, records
from reprolab.store.durable import publish_file, sync_folder, write_file
from reprolab.store.rendezvous import Rendezvous, exchange
from reprolab.store.writer import RunWriter

_ERRORS: Mapping[str, type[LabError]] = {
    error.__name__: error for error in (RunExists, RunNotFound, LabError)
}


def begin_run(
    lab: str | os.PathLike[str],
    name: str,
    *,
    rendezvous: Rendezvous,
    config: Mapping[str, Any] | None,
    mesh: Mapping[str, int],
    policy: Policy,
    environment: Mapping[str, Any],
    code: Mapping[str, Any],
    parent: tuple[str, int] | None = None,
    timeout: float | None = None,
) -> RunWriter:
    """Begin a run and its first attempt; every rank calls this.

    Parameters
    ----------
    lab : path
        Folder of the lab; made if it is missing.
    name : str
        Name of the run, new in this lab.
    rendezvous : Rendezvous
        Where the ranks meet, now and at each checkpoint.
    config, mesh, policy, code
        Of the whole run; rank 0's are kept.
    environment : mapping
        Of this rank.
    parent : (str, int), optional
        Run and step from which this one branches off.
    timeout : float, optional
        Seconds to wait for other ranks; the policy's by default.

    Raises
    ------
    RunExists
        On every rank, if the lab has a run of this name.
    LabError
        On every rank, if the run could not be begun.
    RankTimeout
        If other ranks do not come.
    """
    lab = Path(lab)

    def create(environments: dict[str, Any]) -> int:
        run = lab / paths.check_run_name(name)
        identity = {
            "name": name,
            "id": uuid.uuid4().hex,
            "created": time.time(),
            "config": dict(config or {}),
            "mesh": dict(mesh),
            "policy": dataclasses.asdict(policy),
            "parent": None if parent is None else {"run": parent[0], "step": parent[1]},
        }
        lab.mkdir(parents=True, exist_ok=True)
        # Made complete under another name and then renamed: a run is there whole or not at all,
        # and of two recorders one gets the name.
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=lab))
        try:
            write_file(paths.identity(draft), records.write_text(identity))
            for folder in ("attempts", "checkpoints", "commits", "fingerprints"):
                (draft / folder).mkdir()
            _write_attempt(draft, 0, mesh, environments, code)
            sync_folder(draft)
            draft.chmod(0o755)
            try:
                draft.rename(run)
            except OSError as error:
                if run.exists():
                    raise RunExists(
                        "the lab has a run of this name; choose another", run=name, path=run
                    ) from error
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(lab)
        return 0

    wait = policy.rank_timeout if timeout is None else timeout
    return _begin(lab / name, rendezvous, environment, create, wait)


def begin_attempt(
    lab: str | os.PathLike[str],
    name: str,
    *,
    rendezvous: Rendezvous,
    mesh: Mapping[str, int],
    environment: Mapping[str, Any],
    code: Mapping[str, Any],
    timeout: float = 300.0,
) -> RunWriter:
    """Begin another attempt of a run whose processes have ended; every rank calls this.

    Checkpoints that an earlier attempt began and never committed are removed. Parameters are those
    of :func:`begin_run`.

    Raises
    ------
    RunNotFound
        On every rank, if the lab has no such run.
    """
    run = Path(lab) / name

    def create(environments: dict[str, Any]) -> int:
        paths.check_run_name(name)
        if not paths.identity(run).is_file():
            raise RunNotFound("there is no run to go on with", run=name, path=run)
        records.read_file(paths.identity(run))
        committed = set(paths.committed_steps(run))
        for step, folder in paths.checkpoint_folders(run):
            if step not in committed:
                shutil.rmtree(folder, ignore_errors=True)
        index = max(paths.attempts(run), default=-1) + 1
        _write_attempt(run, index, mesh, environments, code)
        return index

    return _begin(run, rendezvous, environment, create, timeout)


def _begin(
    run: Path,
    rendezvous: Rendezvous,
    environment: Mapping[str, Any],
    create: Callable[[dict[str, Any]], int],
    timeout: float,
) -> RunWriter:
    try:
        message = {"environment": records.simple(environment)}
    except TypeError as error:
        message = {"error": "LabError", "text": f"environment: {error}"}
    answers = exchange(rendezvous, "begin/environment", message, timeout)
    _raise_first(answers, run)
    message = {}
    if rendezvous.rank == 0:
        environments = {str(rank): answer["environment"] for rank, answer in enumerate(answers)}
        try:
            message = {"attempt": create(environments)}
        except Exception as error:
            message = _failure(error)
    answers = exchange(rendezvous, "begin/created", message, timeout)
    _raise_first(answers, run)
    index = answers[0]["attempt"]
    try:
        writer = RunWriter(run, index, rendezvous, timeout)
        message = {}
    except Exception as error:
        writer = None
        message = _failure(error)
    answers = exchange(rendezvous, "begin/opened", message, timeout)
    if rendezvous.rank == 0 and index == 0 and any(answers):
        # Nothing is in it, and its name is wanted for the next try.
        shutil.rmtree(run, ignore_errors=True)
    _raise_first(answers, run)
    return cast("RunWriter", writer)


def _failure(error: Exception) -> dict[str, Any]:
    known = type(error).__name__ if type(error).__name__ in _ERRORS else "LabError"
    text = error.message if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
    return {"error": known, "text": text}


def _raise_first(answers: list[dict[str, Any]], run: Path) -> None:
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["text"], run=run.name, rank=rank, path=run)


def _write_attempt(
    run: Path,
    index: int,
    mesh: Mapping[str, int],
    environments: dict[str, Any],
    code: Mapping[str, Any],
) -> None:
    folder = paths.attempt(run, index)
    for name in ("ledger", "journal"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    record = {
        "attempt": index,
        "began": time.time(),
        "mesh": dict(mesh),
        "world_size": len(environments),
        "environments": environments,
        "code": dict(code),
    }
    publish_file(paths.attempt_file(run, index), records.write_text(record))
    sync_folder(folder.parent)
