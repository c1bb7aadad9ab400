"""Which code ran: the git commit, what was changed since, and every imported module of the user."""

from __future__ import annotations

import hashlib
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from reprolab.capture.redaction import redact_source, redact_text

DIFF_CHARACTERS = 256 << 10
"""A longer diff is cut here; its hash is still that of the whole."""

_SECONDS = 10


def code() -> dict[str, Any]:
    """Identity of the running code as plain JSON values.

    Returns
    -------
    dict
        ``git`` (``commit``, ``branch``, ``remote``, ``dirty``, ``diff`` with secrets left out and
        cut at :data:`DIFF_CHARACTERS`, ``diff_sha256`` of the whole, ``diff_truncated``,
        ``untracked``), or ``None`` outside of a repository; ``modules``: for each imported module
        of the user its file, relative to the working directory, and SHA-256.
    """
    return {"git": _git(Path.cwd()), "modules": modules()}


def modules() -> dict[str, dict[str, str]]:
    """Imported modules that are neither installed packages nor Python's own."""
    installed = _installed()
    here = Path.cwd().resolve()
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or name.partition(".")[0] == "reprolab":
            continue
        if file.startswith(installed):
            continue
        path = Path(file).resolve()
        try:
            content = path.read_bytes()
        except OSError:
            continue
        shown = path.relative_to(here) if path.is_relative_to(here) else Path(path.name)
        found[name] = {"file": shown.as_posix(), "sha256": hashlib.sha256(content).hexdigest()}
    return found


def modules_sha256() -> str:
    """One hash over all of :func:`modules`, to tell ranks with other code apart."""
    hashes = [f"{name} {found['sha256']}\n" for name, found in modules().items()]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _installed() -> tuple[str, ...]:
    places = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    # Compared as text, spelled both ways: thousands of modules would take long to resolve.
    spellings = {str(Path(place).resolve()) for place in places} | places
    return tuple(f"{place}/" for place in spellings)


def _git(folder: Path) -> dict[str, Any] | None:
    commit = _ask(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _ask(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color") or ""
    untracked = (_ask(folder, "ls-files", "--others", "--exclude-standard") or "").splitlines()
    remote = _ask(folder, "remote", "get-url", "origin")
    return {
        "commit": commit.strip(),
        "branch": (_ask(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "remote": redact_text(remote.strip()) if remote else None,
        "dirty": bool(diff),
        "diff": redact_source(_cut(diff)),
        "diff_sha256": hashlib.sha256(diff.encode("utf-8", "surrogateescape")).hexdigest(),
        "diff_truncated": len(diff) > DIFF_CHARACTERS,
        "untracked": len(untracked),
    }


def _cut(text: str) -> str:
    if len(text) <= DIFF_CHARACTERS:
        return text
    # At a line's end: half a line could hold a secret without what gives it away.
    return text[: text.rfind("\n", 0, DIFF_CHARACTERS) + 1]


def _ask(folder: Path, *question: str) -> str | None:
    """Git's answer, or `None` where there is no git, no repository or no answer in time."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *question],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None
