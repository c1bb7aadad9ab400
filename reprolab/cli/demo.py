"""``reprolab demo``: train twice for real, then say where the two runs part."""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    from reprolab.demo.faults import FAULTS

    command = commands.add_parser(
        "demo",
        help="train twice on real processes, one thing changed, and find it",
        description="Train a small transformer twice with the same seed, the second time with one "
        "thing changed that no record names, and say where the two runs part.",
        epilog="faults:\n" + "\n".join(f"  {name:17} {text}" for name, (text, _) in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "--fault",
        choices=FAULTS,
        default="reduction-order",
        metavar="NAME",
        help="what the second run does differently (default: %(default)s)",
    )
    command.add_argument("--ranks", type=int, default=4, help="processes (default: %(default)s)")
    command.add_argument(
        "--steps", type=int, default=64, help="steps of each run (default: %(default)s)"
    )
    command.add_argument(
        "--lab", type=Path, default=None, help="a new folder (default: demo-lab/001, 002, ...)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, compare, print the verdict, write the report."""
    from reprolab.comparison import compare
    from reprolab.demo import FAULTS, train_pair

    lab = options.lab or next_free(Path("demo-lab"))
    started = time.monotonic()
    print(f"Training twice on {options.ranks} processes; the records go to {lab}.")
    print(f"In the second run, {FAULTS[options.fault][0]}. The comparison is not told.\n")
    first, second = train_pair(lab, options.fault, world_size=options.ranks, steps=options.steps)
    found = compare(first, second)
    print(f"\n{found.verdict}\n")
    print(f"Took {time.monotonic() - started:.0f} s. To look closer:")
    if importlib.util.find_spec("altair"):
        from reprolab.views import report

        print(f"  report   {report(found, lab / 'report.html')}")
    else:
        print("  report   needs the views: pip install 'reprolab[lab]'")
    print(f"  again    reprolab compare {first} {second}")
    print(f'  scrub    import reprolab as rl; rl.compare("{first}", "{second}")')
    return 0


def next_free(parent: Path) -> Path:
    """Return the first of 001, 002, ... in `parent` that does not exist."""
    number = 1
    while (parent / f"{number:03}").exists():
        number += 1
    return parent / f"{number:03}"
