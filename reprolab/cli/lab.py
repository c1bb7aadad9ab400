"""``reprolab lab``: JupyterLab, opened at the tour."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from reprolab.errors import LabError

TOUR = "01_tour.ipynb"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser(
        "lab",
        help="open JupyterLab at the tour",
        description="Open JupyterLab at a notebook. Without one, the tour that came with reprolab "
        "is copied into this folder, unless it is there already.",
    )
    command.add_argument("notebook", nargs="?", type=Path, help="notebook to open")
    command.add_argument("--no-browser", action="store_true", help="print the address only")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start JupyterLab and stay until it ends."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise LabError("JupyterLab is not installed; install reprolab[lab]")
    notebook = options.notebook or bring_tour(Path.cwd())
    if not notebook.is_file():
        raise LabError("there is no such notebook", path=notebook)
    words = [sys.executable, "-m", "jupyterlab", str(notebook)]
    if options.no_browser:
        words.append("--no-browser")
    return subprocess.call(words)


def bring_tour(folder: Path) -> Path:
    """Copy the installed tour into `folder`, unless one is there, and return its path."""
    target = folder / TOUR
    if not target.exists():
        source = Path(sysconfig.get_path("data")) / "share" / "reprolab" / "notebooks" / TOUR
        if not source.is_file():
            raise LabError("the tour was not installed; name a notebook to open", path=source)
        shutil.copyfile(source, target)
    return target
