"""Parse the command line, run one subcommand, turn errors into exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import reprolab
from reprolab.cli import compare, demo, imports, lab, runs, show, stragglers
from reprolab.cli.rendering import printable
from reprolab.errors import ReprolabError

SAME, DIFFERENT, FAILED = 0, 1, 2

COMMANDS = (demo, runs, show, compare, stragglers, imports, lab)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="reprolab",
        description="Two distributed training runs should have been the same and were not: "
        "where did they part?",
        epilog="start with: reprolab demo",
    )
    top.add_argument("--version", action="version", version=f"reprolab {reprolab.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of this process when omitted.

    Returns
    -------
    int
        0 when all is well (or the two sides are the same), 1 when they differ, 2 on an error.
    """
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ReprolabError, ImportError, OSError, ValueError) as error:
        print(f"reprolab: {printable(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("reprolab: interrupted", file=sys.stderr)
    return FAILED
