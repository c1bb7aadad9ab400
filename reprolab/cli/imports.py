"""``reprolab import``: a trace of another tool as a table of operations."""

from __future__ import annotations

import argparse
from pathlib import Path

from reprolab.cli.rendering import printable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser(
        "import",
        help="turn a trace of another tool into a table of operations",
        description="Read a trace of the PyTorch profiler, the Flight Recorder or DLIO, or a table "
        "of operations, and write a Parquet table that opens in no time.",
    )
    command.add_argument("path", type=Path, help="a file, a folder or an archive, one file a rank")
    command.add_argument(
        "-o", "--output", type=Path, help="Parquet file to write (default: NAME.operations.parquet)"
    )
    command.add_argument("--force", action="store_true", help="replace the file if there is one")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read, write, say what was found."""
    from reprolab.traces import open_trace

    target = options.output or Path(f"{_plain_name(options.path)}.operations.parquet")
    if target.exists() and not options.force:
        raise FileExistsError(f"{target} is there already; --force replaces it")
    trace = open_trace(options.path)
    partial = target.with_name(f".{target.name}.partial")
    trace.operations.write_parquet(partial)
    partial.replace(target)
    print(f"{trace.source}, written to {printable(str(target))}")
    print(f"operations {len(trace.operations)}")
    print(f"ranks      {len(trace.ranks)}")
    print(f"steps      {len(trace.steps)}")
    for note in trace.notes:
        print(f"note: {printable(note)}")
    print(f"next: reprolab stragglers {printable(str(target))}")
    return 0


def _plain_name(path: Path) -> str:
    name = path.resolve().name
    for suffix in (".gz", ".tar", ".tgz", ".json", ".trace", ".pt", ".parquet", ".csv"):
        name = name.removesuffix(suffix)
    return name or "trace"
