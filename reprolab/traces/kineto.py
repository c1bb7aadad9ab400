"""PyTorch profiler (Kineto) traces: a Chrome trace a rank.

What is kept of a rank and step is what its collectives wait for: the collectives themselves, and in
each gap between them the time its GPU was busy (``compute``) and the time it was idle for data
(``data``). A GPU's work belongs to the step in which the host launched it.

Written for what profilers of different ages write: categories in capitals or not, integer
microseconds since the epoch or decimal ones since ``baseTimeNanoseconds``, ``ncclKernel_`` or
``ncclDevKernel_`` names, with or without ``distributedInfo`` and process groups. Where there are no
GPU collectives, those of gloo are taken, and host operators count as compute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from reprolab.errors import TraceError
from reprolab.tables.operations import OPERATIONS, RECV, SEND, WORK, conform
from reprolab.traces.collectives import collective
from reprolab.traces.events import Events
from reprolab.traces.intervals import both, inside, union
from reprolab.traces.sources import Source
from reprolab.traces.trace import Trace

_STEP = re.compile(r"ProfilerStep#(\d+)")
_ITEM = {
    "float": 4,
    "bfloat16": 2,
    "half": 2,
    "int": 4,
    "long": 8,
    "double": 8,
    "byte": 1,
    "char": 1,
}
_BUSY, _LAUNCH, _HOST, _NOTE, _SKIP = range(5)
_KINDS = {
    "kernel": _BUSY,
    "gpu_memcpy": _BUSY,
    "gpu_memset": _BUSY,
    "cuda_runtime": _LAUNCH,
    "cuda_driver": _LAUNCH,
    "hip_runtime": _LAUNCH,
    "runtime": _LAUNCH,
    "cpu_op": _HOST,
    "operator": _HOST,
    "gpu_user_annotation": _SKIP,
    "python_function": _SKIP,
    "ac2g": _SKIP,
}
"""What an event's category says, in small letters; all others are notes the user or torch left."""


@dataclass(slots=True)
class Meeting:
    """One collective on one rank."""

    name: str
    role: str
    start: float
    end: float
    launched: float
    process_group: str | None
    """Collectives of one name and process group match in their order; `None` matches nothing."""
    bytes: int | None


@dataclass(slots=True)
class Rank:
    """What was read of one rank, times in microseconds."""

    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    meetings: list[Meeting] = field(default_factory=list)
    host_meetings: list[Meeting] = field(default_factory=list)
    busy: list[tuple[float, float]] = field(default_factory=list)
    host: list[tuple[float, float]] = field(default_factory=list)
    data: list[tuple[float, float]] = field(default_factory=list)
    launches: dict[int, float] = field(default_factory=dict)

    def read(self, events: Iterable[dict[str, Any]]) -> None:
        """Take what matters from some events."""
        kinds: dict[object, int] = {}
        for event in events:
            if not isinstance(event, dict) or event.get("ph") != "X" or "ts" not in event:
                continue
            category = event.get("cat")
            kind = kinds.get(category)
            if kind is None:
                kind = kinds[category] = _KINDS.get(str(category).lower(), _NOTE)
            if kind == _SKIP:
                continue
            start = float(event["ts"])
            if kind == _LAUNCH:
                number = event.get("args", {}).get("correlation")
                if isinstance(number, int):
                    self.launches[number] = start
                continue
            end = start + float(event.get("dur", 0.0))
            name = str(event.get("name", ""))
            if kind == _BUSY:
                if name.startswith(("nccl", "rccl", "xccl", "msccl")):
                    self.meetings.append(_meeting(event, start, end))
                else:
                    self.busy.append((start, end))
            elif name.startswith("gloo:"):
                self.host_meetings.append(_meeting(event, start, end))
            elif kind == _HOST:
                self.host.append((start, end))
            else:
                self._note(name, start, end)

    def _note(self, name: str, start: float, end: float) -> None:
        found = _STEP.match(name)
        if found:
            self.steps[int(found.group(1))] = (start, end)
        elif name.startswith("enumerate(DataLoader)"):
            self.data.append((start, end))


def open_kineto(files: list[Source]) -> Trace:
    """Read one trace a rank.

    Parameters
    ----------
    files : list of Source
        Chrome traces in JSON, plain or gzip.

    Raises
    ------
    TraceError
        If a file is no trace, two files are the same rank, or nothing can be used.
    """
    frames: dict[int, pl.DataFrame] = {}
    notes: list[str] = []
    world: int | None = None
    for position, source in enumerate(files):
        rank, size, frame = _open_one(source, position, len(files), notes)
        if rank in frames:
            raise TraceError(
                f"two files are rank {rank}; one file a rank is expected, and either "
                "distributedInfo or the file's name has to say which",
                path=source.name,
                rank=rank,
            )
        frames[rank] = frame
        world = size or world
    if not any(len(frame) for frame in frames.values()):
        raise TraceError("the trace has no operation that can be used", path=files[0].name)
    operations, left_out = conform(pl.concat(frames.values()), source=files[0].name)
    met = operations["role"].ne(WORK).any()
    if not met:
        notes.append("The trace has no collectives: nothing shows who waited for whom.")
    if world is not None and world > len(frames):
        notes.append(f"{world - len(frames)} of {world} ranks have no trace.")
    return Trace(operations, "kineto", files[0].name, world, notes=(*notes, *left_out))


def _open_one(
    source: Source, position: int, count: int, notes: list[str]
) -> tuple[int, int | None, pl.DataFrame]:
    found = Rank()
    with source.open() as stream:
        events = Events(stream, source.name)
        for some in events:
            found.read(some)
    if events.truncated:
        notes.append(
            f"{source.stem} ends within an event; the {events.count} events before it were used."
        )
    told = events.header.get("distributedInfo")
    told = told if isinstance(told, dict) else {}
    rank, size = told.get("rank"), told.get("world_size")
    if not isinstance(rank, int):
        rank = source.rank() if count > 1 else 0
        rank = position if rank is None else rank
        if count > 1:
            notes.append(f"{source.stem} does not say its rank; taken to be rank {rank}.")
    base = events.header.get("baseTimeNanoseconds", 0)
    # All seconds since the epoch would cost a float64 its last digits.
    shift = 1e-9 * (base % 10**15) if isinstance(base, int) else 0.0
    rows = list(_rows(found, rank, notes, source.stem))
    frame = pl.DataFrame(rows, OPERATIONS, orient="row")
    return (
        rank,
        size if isinstance(size, int) else None,
        frame.with_columns(pl.col("start") + shift),
    )


def _meeting(event: dict[str, Any], start: float, end: float) -> Meeting:
    args = event.get("args") or {}
    name, role = collective(str(args.get("Collective name") or event.get("name", "")))
    group: str | None = str(args.get("Process Group Name", ""))
    if role in (SEND, RECV):
        ends = [args.get("Src Rank"), args.get("Dst Rank")]
        group = None if None in ends else f"{group} {ends[0]} to {ends[1]}"
    elements = args.get("In msg nelems")
    size = _ITEM.get(str(args.get("dtype", "")).lower())
    known = isinstance(elements, int) and size is not None
    launched = args.get("correlation")
    return Meeting(
        name,
        role,
        start,
        end,
        float(launched) if isinstance(launched, int) else np.nan,
        group,
        elements * size if known else None,  # type: ignore[operator]  # both are known
    )


def _rows(found: Rank, rank: int, notes: list[str], stem: str) -> Iterator[tuple]:
    meetings = found.meetings or found.host_meetings
    meetings.sort(key=lambda meeting: meeting.start)
    busy = union(found.busy or found.host)
    data = union(found.data)
    windows = sorted((start, end, step) for step, (start, end) in found.steps.items())
    if not windows:
        times = [t for m in meetings for t in (m.start, m.end)] + busy.ravel().tolist()
        if not times:
            notes.append(f"{stem} has neither steps nor operations and was left out.")
            return
        windows = [(min(times), max(times), 0)]
        notes.append(f"{stem} marks no steps; all of it was taken for one step.")
    starts = np.array([start for start, _, _ in windows])
    by_step: dict[int, list[Meeting]] = {step: [] for _, _, step in windows}
    for meeting in meetings:
        launched = found.launches.get(int(meeting.launched)) if meeting.launched >= 0 else None
        moment = meeting.start if launched is None else min(launched, meeting.start)
        place = int(np.searchsorted(starts, moment, side="right")) - 1
        if place >= 0:
            by_step[windows[place][2]].append(meeting)
    frontier = -np.inf
    for (start, end, step), following in pairwise([*windows, (np.inf, np.inf, -1)]):
        met = by_step[step]
        last = max([end, *(meeting.end for meeting in met)])
        begin = max(start, frontier)
        frontier = min(last, max(following[0], *(meeting.end for meeting in met), begin))
        yield from _step_rows(rank, step, begin, max(frontier, begin), met, busy, data)


def _step_rows(
    rank: int,
    step: int,
    begin: float,
    end: float,
    met: list[Meeting],
    busy: np.ndarray,
    data: np.ndarray,
) -> Iterator[tuple]:
    """Rows of one step: per gap between collectives its compute and data, then the collective."""
    numbers: Counter[str] = Counter()
    frontier = begin
    for meeting in [*met, None]:
        until = end if meeting is None else max(meeting.start, frontier)
        if until > frontier:
            worked = inside(busy, frontier, until)
            waited = max(0.0, inside(data, frontier, until) - both(data, busy, frontier, until))
            if worked or not waited:
                yield _row(rank, step, "compute", WORK, frontier, worked)
            if waited:
                yield _row(rank, step, "data", WORK, frontier + worked, waited)
        if meeting is not None:
            met_as = "message" if meeting.role in (SEND, RECV) else meeting.name
            group = f"{meeting.process_group} {met_as}".strip()
            yield _row(
                rank,
                step,
                meeting.name,
                meeting.role,
                meeting.start,
                meeting.end - meeting.start,
                group=None if meeting.process_group is None else f"{group} #{numbers[group]}",
                size=meeting.bytes,
            )
            numbers[group] += 1
            frontier = max(frontier, meeting.end)


def _row(
    rank: int,
    step: int,
    operation: str,
    role: str,
    start: float,
    duration: float,
    *,
    group: str | None = None,
    size: int | None = None,
) -> tuple:
    fields = {
        "rank": rank,
        "step": step,
        "operation": operation,
        "role": role,
        "start": 1e-6 * start,
        "duration": 1e-6 * duration,
        "dp": rank,
        "stage": 0,
        "group": group,
        "bytes": size,
    }
    return tuple(fields.get(name) for name in OPERATIONS)
