"""``reprolab stragglers``: who was late, what it cost, what to do."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from reprolab.cli.rendering import printable, table_text

if TYPE_CHECKING:
    from reprolab.diagnosis.straggling import Stragglers

ROWS = (
    "episodes",
    "culprits",
    "shares",
    "ranks",
    "steps",
    "heat",
    "lateness",
    "batches",
    "resources",
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this subcommand to the command line."""
    command = commands.add_parser(
        "stragglers",
        help="say who was late in a run or a trace, and what it cost",
        description="Find out whether ranks wait for others, for whom, at which steps, why, and "
        "what it costs. Traces may come from the PyTorch profiler, the Flight Recorder, DLIO, or a "
        "table of operations.",
        epilog="exit code: 0 no straggler, 1 something holds the training up, 2 an error",
    )
    command.add_argument("path", metavar="RUN_OR_TRACE", help="folder of a run, or a trace")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--rows", choices=ROWS, action="append", default=[], help="also print this evidence"
    )
    command.add_argument(
        "--fix",
        metavar="KEY=VALUE[,...]",
        action="append",
        default=[],
        help="also say what a step would take with this made ideal, as in rank=3 or "
        "operation=forward-compute,to=0.8; may be given again",
    )
    command.add_argument("--plan", action="store_true", help="also print a plan of microbatches")
    command.add_argument("--watts", type=float, help="power of a waiting device, for the energy")
    command.add_argument(
        "--co2", type=float, metavar="KG", help="kilograms of CO2 emitted a kilowatt-hour"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Analyse and print the verdict."""
    from reprolab.diagnosis.straggling import Cause, stragglers
    from reprolab.errors import TraceError

    found = stragglers(options.path)
    try:
        if options.json:
            print(json.dumps(_document(found, options), allow_nan=False, indent=2))
        else:
            _print(found, options)
    except ValueError as error:
        raise TraceError(str(error), path=options.path) from error
    return 0 if found.cause in (Cause.NONE, Cause.ALONE) else 1


def _document(found: Stragglers, options: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    document = found.to_dict()
    document["cost"] = asdict(
        found.cost(watts=options.watts, kilograms_co2_per_kilowatt_hour=options.co2)
    )
    if options.fix:
        what = found.what_if([fix_of(text) for text in options.fix])
        document["what_if"] = {"seconds": what.seconds, "saved": what.saved, "share": what.share}
    if options.plan:
        proposal = found.plan()
        document["plan"] = {
            "switch": proposal.plan.switch,
            "reason": proposal.plan.reason,
            "replayed": proposal.replayed,
            "replicas": proposal.table.to_dicts(),
        }
    for name in options.rows:
        frame = found.rows.get(name)
        document[f"rows_{name}"] = [] if frame is None else frame.fill_nan(None).to_dicts()
    return document


def _print(found: Stragglers, options: argparse.Namespace) -> None:
    print(printable(found.verdict))
    cost = found.cost(watts=options.watts, kilograms_co2_per_kilowatt_hour=options.co2)
    said = (
        f"cost: {cost.seconds:.3g} s over {cost.steps} steps, {cost.device_hours:.3g} device-hours"
    )
    if cost.kilowatt_hours is not None:
        said += f", {cost.kilowatt_hours:.3g} kWh"
    if cost.kilograms_co2 is not None:
        said += f", {cost.kilograms_co2:.3g} kg CO2"
    print(f"{said}; {cost.working:.0%} working, {cost.waiting:.0%} waiting")
    for note in found.notes:
        print(f"note: {printable(note)}")
    if options.fix:
        what = found.what_if([fix_of(text) for text in options.fix])
        print(
            f"what if {' and '.join(map(printable, options.fix))}: {what.seconds:.4g} s a step, "
            f"{what.share:.1%} saved"
        )
    if options.plan:
        proposal = found.plan()
        print(f"plan: {proposal.plan.reason}")
        print(table_text(proposal.table))
    for name in options.rows:
        frame = found.rows.get(name)
        print(f"\n{name}")
        print("none recorded" if frame is None or frame.is_empty() else table_text(frame))


def fix_of(text: str) -> dict[str, object]:
    """Read a fix from a command line.

    Examples
    --------
    >>> fix_of("rank=3,operation=forward-compute,to=0.8")
    {'rank': 3, 'operation': 'forward-compute', 'to': 0.8}
    """
    fix: dict[str, object] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"a fix is KEY=VALUE[,KEY=VALUE...]; got {text!r}")
        fix[key.strip()] = _value(value.strip())
    return fix


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
