"""``reprolab show``: what one run holds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from reprolab.cli.rendering import printable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser("show", help="say what a run holds")
    command.add_argument("path", help="folder of a run")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print identity, configuration, attempts, streams and checkpoints."""
    from reprolab.store import open_run

    run = open_run(options.path)
    streams = {}
    for rank in run.ranks[:1]:
        reader = run.fingerprints(rank)
        for stream in reader.streams:
            steps = reader.steps(stream)
            layout = reader.layout(stream, int(steps[-1]))
            streams[stream] = {
                "steps": len(steps),
                "first": int(steps[0]),
                "last": int(steps[-1]),
                "tensors": len(layout.tensors),
                "bytes": sum(tensor.nbytes for tensor in layout.tensors),
            }
    facts = {
        "run": run.name,
        "path": str(run.path),
        "parent": run.parent,
        "attempts": [
            {"mesh": attempt.mesh, "ranks": attempt.world_size} for attempt in run.attempts
        ],
        "missing_ranks": run.missing_ranks,
        "configuration": run.config,
        "streams": streams,
        "checkpoints": run.checkpoints,
    }
    if options.json:
        print(json.dumps(facts, default=str, indent=2))
    else:
        print("\n".join(_lines(facts)))
    return 0


def _lines(facts: Mapping[str, object], indent: str = "") -> list[str]:
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{printable(str(key))}")
            lines += _lines(value, indent + "  ")
        else:
            shown = "none" if value in (None, [], {}) else value
            lines.append(f"{indent}{printable(str(key)):18} {printable(str(shown))}")
    return lines
