"""Dumps of PyTorch's Flight Recorder: the last collectives of each rank, as JSON or pickle.

A dump notes when a collective was enqueued and, where timing was switched on
(``TORCH_NCCL_ENABLE_TIMING``), how long it ran; not when it ran. Since nobody leaves a barrier-like
collective before the last rank has entered it, its members are laid out to end together: measured
durations tell who came last. Without them, a rank is taken to enter when it enqueues, and to wait
until the last one does. Dumps know no steps: a step is the shortest repeating pattern of
collectives, counted by the sequence numbers that all ranks share. Collectives that some rank never
finished are what the recorder is for; they are named in the notes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from reprolab.errors import TraceError
from reprolab.tables.operations import BARRIER, OPERATIONS, RECV, SEND, conform
from reprolab.traces.collectives import collective
from reprolab.traces.documents import load_json, load_plain_pickle
from reprolab.traces.sources import Source
from reprolab.traces.trace import Trace

SAME = 0.95
"""Share of a rank's collectives that must repeat for a pattern to count as a step."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective or message on one rank."""

    name: str
    role: str
    group: str
    """Process group, with the two ends of a message."""
    number: int
    """Sequence number in its process group, the same on all ranks."""
    size: str
    created: float
    duration: float | None
    """Measured seconds."""
    completed: bool

    @property
    def key(self) -> tuple[str, int]:
        """The same on all ranks."""
        return self.group, self.number


def open_flight(files: list[Source]) -> Trace:
    """Read the dumps of all ranks.

    Raises
    ------
    TraceError
        If a file is no dump, or nothing has ended on any rank.
    """
    ranks: dict[int, list[Entry]] = {}
    world, notes = 0, []
    for position, source in enumerate(files):
        pickled = source.head()[:1] == b"\x80"
        document = load_plain_pickle(source) if pickled else load_json(source)
        rank = source.rank()
        rank = position if rank is None else rank
        if rank in ranks:
            raise TraceError(f"two dumps are rank {rank}", path=source.name, rank=rank)
        ranks[rank] = list(_entries(document, source))
        world = max(world, _world_size(document))
    measured = any(e.duration is not None for entries in ranks.values() for e in entries)
    if not measured:
        notes.append(
            "The dumps measured no durations (TORCH_NCCL_ENABLE_TIMING was off): each rank was "
            "taken to wait from enqueueing a collective until the last rank did, by clocks that "
            "nothing can check."
        )
    notes += _unfinished(ranks)
    placed, pattern = _placed(ranks), _step_of(ranks)
    rows = [row for rank in sorted(ranks) for row in _rows(rank, ranks[rank], pattern, placed)]
    if not rows:
        raise TraceError("no collective of these dumps has ended", path=files[0].name)
    operations, left_out = conform(pl.DataFrame(rows, OPERATIONS, orient="row"))
    return Trace(
        operations,
        "flight recorder",
        files[0].name,
        max(world, len(ranks)),
        laid_out=True,
        notes=(*notes, *left_out),
    )


def _entries(document: Any, source: Source) -> Iterator[Entry]:
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise TraceError("expected a dump with a list of entries", path=source.name)
    for entry in entries:
        if not isinstance(entry, dict) or "profiling_name" not in entry:
            raise TraceError("an entry of the dump has no profiling_name", path=source.name)
        told = str(entry["profiling_name"])
        name, role = collective(told)
        process_group = entry.get("process_group") or ("",)
        group = str(process_group[0] if isinstance(process_group, list | tuple) else process_group)
        number = entry.get("collective_seq_id") or entry.get("seq_id") or 0
        if role in (SEND, RECV):
            number = entry.get("p2p_seq_id") or 0
            group = f"{group} {'-'.join(_ends(told))}"
        created, lasted = entry.get("time_created_ns"), entry.get("duration_ms", -1.0)
        if not isinstance(created, int | float):
            raise TraceError("an entry of the dump has no time_created_ns", path=source.name)
        timed = isinstance(lasted, int | float) and 0 <= lasted < math.inf
        yield Entry(
            name,
            role,
            group,
            int(number),
            str(entry.get("input_sizes", "")),
            1e-9 * created,
            1e-3 * float(lasted) if timed else None,
            entry.get("state") == "completed" or entry.get("retired") is True,
        )


def _ends(told: str) -> list[str]:
    """Sender and receiver in ``nccl:send 0->1`` and ``nccl:recv 1<-0``."""
    if "->" in told:
        return told.rpartition(" ")[2].split("->")
    if "<-" in told:
        return told.rpartition(" ")[2].split("<-")[::-1]
    return ["?"]


def _world_size(document: Any) -> int:
    config = document.get("pg_config")
    listed = config.values() if isinstance(config, dict) else []
    return max((str(one.get("ranks", "")).count(",") + 1 for one in listed), default=0)


def _unfinished(ranks: dict[int, list[Entry]]) -> Iterator[str]:
    for rank in sorted(ranks):
        open_ones = [entry for entry in ranks[rank] if not entry.completed]
        if open_ones:
            first = open_ones[0]
            absent = [
                other for other in sorted(ranks) if all(e.key != first.key for e in ranks[other])
            ]
            said = f"Rank {rank} never finished {first.name} {first.number} of group {first.group}"
            if absent:
                said += f", which rank {', '.join(map(str, absent))} never entered"
            yield f"{said}."


def _step_of(ranks: dict[int, list[Entry]]) -> tuple[str, int, int]:
    """Process group that counts steps, its first sequence number and how many make a step."""
    groups = Counter(
        e.group for entries in ranks.values() for e in entries if e.role not in (SEND, RECV)
    )
    if not groups:
        return "", 0, 0
    main = groups.most_common(1)[0][0]
    series = max(([e for e in entries if e.group == main] for entries in ranks.values()), key=len)
    first = min(e.number for entries in ranks.values() for e in entries if e.group == main)
    code = [(e.name, e.size) for e in series]
    for length in range(1, len(code) // 2 + 1):
        same = sum(a == b for a, b in zip(code, code[length:], strict=False))
        if same >= SAME * (len(code) - length):
            return main, first, length
    return main, first, 0


def _placed(ranks: dict[int, list[Entry]]) -> dict[tuple[str, int], tuple[float, float | None]]:
    """Last enqueueing and shortest measured duration of every barrier-like collective."""
    together: dict[tuple[str, int], list[Entry]] = {}
    for entries in ranks.values():
        for entry in entries:
            if entry.role == BARRIER and entry.completed:
                together.setdefault(entry.key, []).append(entry)
    found = {}
    for key, entries in together.items():
        known = [entry.duration for entry in entries if entry.duration is not None]
        shortest = min(known) if len(known) == len(entries) else None
        found[key] = max(entry.created for entry in entries), shortest
    return found


def _rows(
    rank: int,
    entries: list[Entry],
    pattern: tuple[str, int, int],
    placed: dict[tuple[str, int], tuple[float, float | None]],
) -> Iterator[tuple]:
    main, first, length = pattern
    step, met = 0, Counter[tuple[int, str]]()
    for entry in sorted(entries, key=lambda e: e.created):
        if entry.group == main and length:
            step = (entry.number - first) // length
        if not entry.completed:
            continue
        start, duration = entry.created, entry.duration or 0.0
        if entry.key in placed:
            last, shortest = placed[entry.key]
            if shortest is None:
                duration = last - entry.created
            else:
                start = last + shortest - duration
        way = "message" if entry.role in (SEND, RECV) else entry.name
        label = f"{entry.group} {way}"
        fields = {
            "rank": rank,
            "step": step,
            "operation": entry.name,
            "role": entry.role,
            "start": start,
            "duration": duration,
            "dp": rank,
            "stage": 0,
            "group": f"{label} #{met[step, label]}",
        }
        met[step, label] += 1
        yield tuple(fields.get(name) for name in OPERATIONS)
