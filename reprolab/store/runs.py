"""Labs and runs as readers see them: finished, crashed, or still being written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from reprolab.errors import (
    DamagedData,
    FormatTooNew,
    LabError,
    LabNotFound,
    RunNotFound,
    StepNotCommitted,
)
from reprolab.store import paths, records
from reprolab.store.checkpoints import Checkpoint
from reprolab.store.fingerprints import FingerprintReader
from reprolab.store.ledger import read_facts
from reprolab.vocabulary import BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run's processes."""

    index: int
    mesh: Mapping[str, int]
    """Extent of each axis, for example ``{"dp": 4}``."""
    world_size: int
    environments: Mapping[int, dict[str, Any]]
    """What each rank said about where it runs."""
    code: Mapping[str, Any]
    """Commit, diff and hashes of imported modules."""
    began: float
    """Seconds since the epoch."""


class Run:
    """One training, read from its folder."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.name = self.path.name or self.path.resolve().name
        try:
            self.identity: dict[str, Any] = records.read_file(paths.identity(self.path))
        except (FileNotFoundError, NotADirectoryError):
            raise RunNotFound(_why_no_run(self.path), path=self.path) from None
        except (DamagedData, FormatTooNew) as error:
            raise error.at(run=self.name) from None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The training's configuration."""
        return self.identity["config"]

    @property
    def policy(self) -> dict[str, Any]:
        """What was captured, and how often."""
        return self.identity["policy"]

    @property
    def parent(self) -> tuple[str, int] | None:
        """Run and step from which this one branched off."""
        parent = self.identity["parent"]
        return None if parent is None else (parent["run"], parent["step"])

    @property
    def attempts(self) -> list[Attempt]:
        """Every start of its processes, in order."""
        return [self._attempt(index) for index in paths.attempts(self.path)]

    @property
    def ranks(self) -> list[int]:
        """Ranks that left anything behind."""
        found = set(paths.ranks_in(self.path / "fingerprints"))
        for index in paths.attempts(self.path):
            for folder in ("ledger", "journal"):
                found.update(paths.ranks_in(paths.attempt(self.path, index) / folder))
        return sorted(found)

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks that an attempt had and that left nothing behind."""
        expected = {rank for attempt in self.attempts for rank in range(attempt.world_size)}
        return sorted(expected.difference(self.ranks))

    def facts(self, rank: int | None = None) -> Iterator[dict[str, Any]]:
        """What the ranks wrote down, of all attempts, with ``rank`` and ``attempt`` added.

        Parameters
        ----------
        rank : int, optional
            Only this rank's.

        Raises
        ------
        DamagedData
            At the first line that does not check; a torn last line is skipped.
        """
        for index in paths.attempts(self.path):
            ranks = paths.ranks_in(paths.attempt(self.path, index) / "ledger")
            for number in ranks if rank is None else [rank] if rank in ranks else []:
                try:
                    yield from read_facts(paths.ledger(self.path, index, number), number, index)
                except DamagedData as error:
                    raise error.at(run=self.name) from None

    def fingerprints(self, rank: int) -> FingerprintReader:
        """Fingerprints of one rank as they are now."""
        return FingerprintReader(self.path, rank)

    @property
    def checkpoints(self) -> list[int]:
        """Committed steps whose folder is there, in order."""
        return [
            step
            for step in paths.committed_steps(self.path)
            if paths.checkpoint(self.path, step).is_dir()
        ]

    def checkpoint(self, step: int) -> Checkpoint:
        """The state saved at one step.

        Raises
        ------
        StepNotCommitted
            If there is none.
        DamagedData
            If its commit record does not check.
        """
        known = self.checkpoints
        if step not in known:
            steps = ", ".join(map(str, known)) or "none"
            raise StepNotCommitted(
                f"no checkpoint was committed at this step; committed steps: {steps}",
                run=self.name,
                step=step,
            )
        return Checkpoint(self.path, step, self.policy.get("block_bytes", BLOCK_BYTES))

    def table_file(self, name: str) -> Path:
        """Where a consolidated table of this name belongs."""
        return paths.table(self.path, name)

    @cached_property
    def _known(self) -> dict[int, Attempt]:
        return {}

    def _attempt(self, index: int) -> Attempt:
        if index not in self._known:
            try:
                record = records.read_file(paths.attempt_file(self.path, index))
            except (DamagedData, FormatTooNew) as error:
                raise error.at(run=self.name) from None
            environments = {int(rank): held for rank, held in record["environments"].items()}
            self._known[index] = Attempt(
                index,
                record["mesh"],
                record["world_size"],
                environments,
                record["code"],
                record["began"],
            )
        return self._known[index]


class Lab:
    """A folder of runs."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise LabNotFound("there is no such folder; record a run into it first", path=path)
        if not self.path.is_dir():
            raise LabError("a lab is a folder of runs; this is a file", path=path)
        if paths.identity(self.path).exists():
            raise LabError(
                f"this is a run, not a lab; its lab is {str(self.path.parent)!r}", path=path
            )

    def __repr__(self) -> str:
        return f"Lab({str(self.path)!r})"

    def names(self) -> list[str]:
        """Names of the runs, sorted. A folder that holds no run is passed over."""
        return sorted(
            entry.name
            for entry in self.path.iterdir()
            if not entry.name.startswith(".") and paths.identity(entry).is_file()
        )

    def __getitem__(self, name: str) -> Run:
        try:
            return Run(self.path / paths.check_run_name(name))
        except RunNotFound as error:
            known = ", ".join(self.names()[:20]) or "none"
            raise RunNotFound(f"{error.message}; runs of this lab: {known}", run=name) from None

    def __iter__(self) -> Iterator[Run]:
        return (self[name] for name in self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()


def open_lab(path: str | PathLike[str]) -> Lab:
    """Open a folder of runs for reading.

    Raises
    ------
    LabNotFound
        If it does not exist.
    LabError
        If it is a file, or a run.
    """
    return Lab(path)


def open_run(path: str | PathLike[str]) -> Run:
    """Open one run by its folder, ``"lab/run"``, for reading.

    Raises
    ------
    RunNotFound
        If there is no run.
    DamagedData
        If its identity does not check.
    FormatTooNew
        If a newer version wrote it.
    """
    return Run(path)


def _why_no_run(path: Path) -> str:
    if not path.exists():
        return "there is no such folder"
    if not path.is_dir():
        return "a run is a folder; this is a file"
    try:
        is_lab = any(paths.identity(entry).is_file() for entry in path.iterdir())
    except PermissionError:
        is_lab = False
    if is_lab:
        return "this is a lab; name one of its runs"
    return "this folder has no run.json, so no run was begun in it, or the file was lost"
