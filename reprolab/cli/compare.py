"""``reprolab compare``: where two runs part, or the ranks of one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from reprolab.cli.rendering import printable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser(
        "compare",
        help="say where two runs part, or the ranks of one run",
        description="Find the first difference of two runs in causal order. With one run, compare "
        "its ranks with each other.",
        epilog="exit code: 0 the same, 1 different, 2 an error",
    )
    command.add_argument("a", help="folder of a run")
    command.add_argument("b", nargs="?", help="folder of another run")
    command.add_argument(
        "--streams", nargs="+", metavar="STREAM", help="compare only these streams"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a report")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print the verdict."""
    from reprolab.comparison import compare

    found = compare(options.a, options.b, streams=options.streams)
    if options.json:
        print(json.dumps(found.to_dict(), allow_nan=False, indent=2))
    else:
        print(printable(found.verdict))
        for note in found.notes:
            print(f"note: {printable(note)}")
    if options.html:
        from reprolab.views import report

        report(found, options.html)
    return 0 if found.same else 1
