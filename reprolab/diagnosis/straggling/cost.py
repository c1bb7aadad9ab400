"""What the slowdown costs, and how the ranks' time is spent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.serial import HOST
from reprolab.tables.operations import WORK


@dataclass(frozen=True, slots=True)
class Cost:
    """Waste of a trace, or of as many steps as were asked for."""

    steps: int
    """Steps counted."""
    devices: int
    """Devices that wait."""
    seconds: float
    """Seconds that these steps took longer than ideal ones."""
    device_hours: float
    """The same, times the devices."""
    kilowatt_hours: float | None
    """Energy used meanwhile; None without a power per device."""
    kilograms_co2: float | None
    """Carbon dioxide emitted meanwhile; None without a factor."""
    working: float
    """Share of the ranks' time spent on their own work."""
    transferring: float
    """Share spent in transfers, without waiting."""
    waiting: float
    """The rest: waiting for others, pipeline bubbles, and what nobody recorded."""


def cost(
    model: Model,
    *,
    devices: int,
    steps: int | None = None,
    watts: float | None = None,
    kilograms_co2_per_kilowatt_hour: float | None = None,
) -> Cost:
    """Price the slowdown.

    Parameters
    ----------
    model : Model
    devices : int
        Devices of the whole job, traced or not.
    steps : int, optional
        Steps to count; those of the trace when omitted.
    watts : float, optional
        Power of a waiting device with its share of the host.
    kilograms_co2_per_kilowatt_hour : float, optional
        Of the electricity used.

    Raises
    ------
    ValueError
        If a number is negative, or a carbon factor comes without a power.
    """
    counted = len(model.timing.steps) if steps is None else steps
    if counted < 0 or devices < 1:
        raise ValueError(f"steps and devices must be positive; got {counted} and {devices}")
    if kilograms_co2_per_kilowatt_hour is not None and watts is None:
        raise ValueError("a carbon factor needs the power of a device: give watts as well")
    if min(watts or 0.0, kilograms_co2_per_kilowatt_hour or 0.0) < 0:
        raise ValueError("watts and the carbon factor must not be negative")
    seconds = counted * max(0.0, float(model.actual.mean()) - model.ideal)
    hours = seconds * devices / 3600
    energy = None if watts is None else hours * watts / 1000
    carbon = None
    if energy is not None and kilograms_co2_per_kilowatt_hour is not None:
        carbon = energy * kilograms_co2_per_kilowatt_hour
    working, transferring = _spent(model)
    waiting = max(0.0, 1 - working - transferring)
    return Cost(counted, devices, seconds, hours, energy, carbon, working, transferring, waiting)


def against_world_size(costs: Iterable[Cost]) -> pl.DataFrame:
    """How the shares change with the size of the job: one row a cost, the smallest job first."""
    return pl.DataFrame(
        [
            {
                "devices": one.devices,
                "working": one.working,
                "transferring": one.transferring,
                "waiting": one.waiting,
            }
            for one in costs
        ]
    ).sort("devices")


def _spent(model: Model) -> tuple[float, float]:
    nodes, own = model.graph.nodes, model.timing.own
    works = nodes["role"].to_numpy() == WORK
    recorded = works & (nodes["operation"] != HOST).to_numpy()
    total = float(model.timing.span.sum()) * nodes["rank"].n_unique()
    if total <= 0:
        return 0.0, 0.0
    working = float(np.sum(own[recorded])) / total
    # Both ends of a message, and messages in both directions, may pass at once.
    return min(working, 1.0), min(float(np.sum(own[~works])) / total, max(0.0, 1 - working))
