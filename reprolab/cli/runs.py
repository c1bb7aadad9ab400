"""``reprolab runs``: the runs of a lab as a table."""

from __future__ import annotations

import argparse
import json

from reprolab.cli.rendering import table_text


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser("runs", help="list the runs of a lab")
    command.add_argument("lab", help="folder of the lab")
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one row a run."""
    from reprolab.store import open_lab
    from reprolab.tables import runs

    frame = runs(open_lab(options.lab))
    if options.json:
        print(json.dumps(frame.to_dicts(), default=str, indent=2))
    elif frame.is_empty():
        print(f"{options.lab} holds no runs yet")
    else:
        print(table_text(frame))
    return 0
