"""Every path of the format is built here, and names from outside become safe ones.

A name that is plain already is used as it is. Any other keeps its readable characters and gains a
part of its hash, so that no name leaves its folder, none is too long, and two names never meet,
not even where the file system ignores case.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path, PurePosixPath

from reprolab.errors import DamagedData, LabError

_PLAIN = re.compile(r"(?!__)[a-z0-9_](?:[a-z0-9_.-]{0,118}[a-z0-9_-])?")
_RUN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+=,@ -]{0,126}[A-Za-z0-9_+=-])?")
_STREAM = re.compile(r"[a-z][a-z0-9_]{0,39}")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
_ZARR = {"zarr.json", "c"}
_STEP_FILE = re.compile(r"(\d{12,19})\.json")
_RANK_FILE = re.compile(r"rank-(\d{5,})\.(?:jsonl|bin|zarr)")

REPLICAS = "replicas"
"""Group of a checkpoint that holds the ranks' own copies; no stream may have this name."""


def component(name: str) -> str:
    """Path component of a tensor's name.

    Examples
    --------
    >>> component("layers.0.attn.weight")
    'layers.0.attn.weight'
    >>> component("../../etc/passwd")
    'etc_passwd~3754d6cb3a38e118'
    """
    if _PLAIN.fullmatch(name) and not _DEVICE.fullmatch(name) and name not in _ZARR:
        return name
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:80].strip("._")
    return f"{readable}~{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def check_run_name(name: str) -> str:
    """Return `name` if it can name a run's folder.

    Raises
    ------
    LabError
        If it is not letters, digits and ``._+=,@ -`` with a letter or digit in front.
    """
    if not _RUN.fullmatch(name) or _DEVICE.fullmatch(name):
        raise LabError(
            f"a run's name is 1 to 128 letters, digits and any of '._+=,@ -', begins with a letter "
            f"or digit and does not end in '.' or ' '; got {name[:200]!r}"
        )
    return name


def check_stream_name(name: str) -> str:
    """Return `name` if it can name a stream."""
    if not _STREAM.fullmatch(name) or name == REPLICAS or component(name) != name:
        raise ValueError(f"a stream's name is a short lower-case word; got {name[:200]!r}")
    return name


def rank_name(rank: int) -> str:
    """Name of all that belongs to one rank."""
    return f"rank-{rank:05d}"


def identity(run: Path) -> Path:
    """Identity and configuration of a run; it makes a folder a run."""
    return run / "run.json"


def attempt(run: Path, index: int) -> Path:
    """Folder of one attempt."""
    return run / "attempts" / f"{index:03d}"


def attempt_file(run: Path, index: int) -> Path:
    """Mesh, environment and code of one attempt."""
    return attempt(run, index) / "attempt.json"


def attempts(run: Path) -> list[int]:
    """Attempts that have begun, in order."""
    return sorted(
        int(folder.name)
        for folder in _listing(run / "attempts")
        if folder.name.isdecimal() and (folder / "attempt.json").exists()
    )


def ledger(run: Path, index: int, rank: int) -> Path:
    """Facts of one rank in one attempt."""
    return attempt(run, index) / "ledger" / f"{rank_name(rank)}.jsonl"


def journal(run: Path, index: int, rank: int) -> Path:
    """Fingerprints of one rank in one attempt that are not folded yet."""
    return attempt(run, index) / "journal" / f"{rank_name(rank)}.bin"


def fingerprints(run: Path, rank: int) -> Path:
    """Zarr group of one rank's folded fingerprints."""
    return run / "fingerprints" / f"{rank_name(rank)}.zarr"


def ranks_in(folder: Path) -> list[int]:
    """Ranks that have something in a folder of ledgers, journals or fingerprints."""
    found = (_RANK_FILE.fullmatch(entry.name) for entry in _listing(folder))
    return sorted(int(match[1]) for match in found if match)


def checkpoint(run: Path, step: int) -> Path:
    """Zarr group of the state at one step."""
    return run / "checkpoints" / f"{step:012d}"


def commits(run: Path) -> Path:
    """Folder of commit records."""
    return run / "commits"


def commit(run: Path, step: int) -> Path:
    """Commit record of one step; the step's checkpoint exists only with it."""
    return commits(run) / f"{step:012d}.json"


def committed_steps(run: Path) -> list[int]:
    """Steps that have a commit record, in order."""
    found = (_STEP_FILE.fullmatch(entry.name) for entry in _listing(commits(run)))
    return sorted(int(match[1]) for match in found if match)


def checkpoint_folders(run: Path) -> list[tuple[int, Path]]:
    """Folders of checkpoints, committed or not."""
    return [
        (int(folder.name), folder)
        for folder in _listing(run / "checkpoints")
        if folder.name.isdecimal()
    ]


def stored(stream: str, tensor: str, rank: int | None = None) -> str:
    """Path of an array within a checkpoint: the shared one, or a rank's own copy."""
    shared = f"{stream}/{component(tensor)}"
    return shared if rank is None else f"{REPLICAS}/{rank_name(rank)}/{shared}"


def inside(root: Path, relative: str) -> Path:
    """A path read from a record, refused if it would leave `root`.

    Raises
    ------
    DamagedData
        If it is absolute or climbs.
    """
    path = PurePosixPath(relative)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in relative:
        raise DamagedData(f"a path must stay within its folder; got {relative[:200]!r}", path=root)
    return root / path


def table(run: Path, name: str) -> Path:
    """Parquet file of one consolidated table."""
    return run / "tables" / f"{name}.parquet"


def _listing(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
