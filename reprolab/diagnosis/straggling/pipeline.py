"""The graph of a step of pipeline- and data-parallel training.

Every data-parallel replica runs the same operations, so the order is read once, from the first
replica at the first step, and repeated for the others. On each stage

- computations run in the order of their starts, and so does each of the four kinds of messages;
- a send waits for the computation whose result it carries, a computation for the receive that
  brings its input, a receive for the computation before;
- parameters are gathered before the first forward computation of their model part;
- after the last computation come, in this order, garbage collection, the all-reduce of layer-norm
  gradients, that of embedding gradients (first and last stage together), the reduction of the
  other gradients, clipping (all ranks together) and the optimizer. Where gradients are reduced
  part by part during the backward pass, each reduction waits for its part's last computation.

References
----------
Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from reprolab.diagnosis.straggling.graph import NODES, Graph, assemble
from reprolab.tables.operations import RECV

FORWARD, BACKWARD = "forward-compute", "backward-compute"
GATHER, REDUCE, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
COLLECT, LAYERNORM, EMBEDDING = "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
KNOWN = {
    FORWARD,
    BACKWARD,
    GATHER,
    REDUCE,
    SEPARATE,
    COLLECT,
    LAYERNORM,
    EMBEDDING,
    CLIP,
    OPTIMIZER,
}
KNOWN |= set(MESSAGES)

SLACK = 5e-5
"""Seconds by which a message may overlap the computation it belongs to (timer resolution)."""

Key = tuple[int, str, int]
"""Stage, operation, sequence number."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the replica the order is read from."""

    key: Key
    role: str
    start: float
    end: float
    part: int
    microbatch: int | None

    @property
    def place(self) -> tuple[float, int, str]:
        """Sorts by start; ties by number, then by name."""
        return self.start, self.key[2], self.key[1]


class Replica:
    """The dependencies within one replica, and which of its operations meet others."""

    def __init__(self, operations: list[Operation]) -> None:
        self.index = {operation.key: i for i, operation in enumerate(operations)}
        self.waits: list[list[int]] = [[] for _ in operations]
        self.groups: list[list[int]] = []
        self.wide: set[int] = set()
        self.operations = operations
        self.stages = 1 + max(operation.key[0] for operation in operations)
        self.parts = 1 + max(operation.part for operation in operations)
        self.messages: dict[tuple[str, int], list[int]] = {}
        for stage in range(self.stages):
            self._stage([op for op in operations if op.key[0] == stage], stage)
        self._meet()

    def _wait(self, later: Key | None, earlier: Key | None) -> None:
        if later in self.index and earlier in self.index:
            self.waits[self.index[later]].append(self.index[earlier])

    def _chain(self, keys: list[Key]) -> None:
        present = [key for key in keys if key in self.index]
        for earlier, later in pairwise(present):
            self._wait(later, earlier)

    def _stage(self, operations: list[Operation], stage: int) -> None:
        operations.sort(key=lambda operation: operation.place)
        computed = [op for op in operations if op.key[1] in (FORWARD, BACKWARD)]
        self._chain([op.key for op in computed])
        for kind in MESSAGES:
            found = [op for op in operations if op.key[1] == kind]
            self._chain([op.key for op in found])
            self._match(found, [op for op in computed if op.key[1][:4] == kind[:4]], stage)
        self._first_backward_messages(computed, stage)
        self._chain([op.key for op in operations if op.key[1] in (GATHER, REDUCE)])
        self._gathers(operations, computed)
        self._after_computation(operations, computed, stage)

    def _match(self, messages: list[Operation], computed: list[Operation], stage: int) -> None:
        if not messages or not computed:
            return
        kind, role = messages[0].key[1], messages[0].role
        ahead = 1 if kind in ("forward-send", "backward-recv") else -1
        # Recorders also note messages that never left: receives after the last computation, sends
        # before the first one ended.
        if role == RECV:
            limit = max(op.start for op in computed) + SLACK
            real = [op for op in messages if op.start <= limit]
        else:
            limit = min(op.end for op in computed) - SLACK
            real = [op for op in messages if op.end >= limit]
        if len(real) > len(computed):
            raise ValueError(
                f"stage {stage} has {len(real)} {kind} for {len(computed)} computations"
            )
        by_number = {op.key[2]: op for op in computed}
        skip = 1 if role == RECV and len(real) + 1 == len(computed) else 0
        travels = self.messages.setdefault((kind, stage), [])
        for number, message in enumerate(real, start=skip):
            match = by_number[number]
            if role == RECV:
                self._wait(match.key, message.key)
                if number:
                    self._wait(message.key, by_number[number - 1].key)
            else:
                self._wait(message.key, match.key)
            # Counted over the whole model, the parts of stage s are s, s + stages, ...
            if 0 <= match.part * self.stages + stage + ahead < self.parts * self.stages:
                travels.append(self.index[message.key])

    def _first_backward_messages(self, computed: list[Operation], stage: int) -> None:
        names = [op.key[1] for op in computed]
        turn = names.index(BACKWARD) if BACKWARD in names else 0
        if turn >= 2:
            for kind in ("backward-recv", "backward-send"):
                self._wait((stage, kind, 0), computed[turn - 2].key)

    def _gathers(self, operations: list[Operation], computed: list[Operation]) -> None:
        latest = {op.part: op for op in operations if op.key[1] == GATHER}
        for part, gather in latest.items():
            users = [op for op in computed if op.key[1] == FORWARD and op.part == part]
            if users:
                self._wait(min(users, key=lambda op: op.start).key, gather.key)

    def _after_computation(
        self, operations: list[Operation], computed: list[Operation], stage: int
    ) -> None:
        if not computed:
            raise ValueError(f"stage {stage} has no computation")
        last = max(computed, key=lambda op: op.end)
        self._wait((stage, COLLECT, 0), last.key)
        before = (stage, COLLECT, 0) if (stage, COLLECT, 0) in self.index else last.key
        reductions = sorted(op.key for op in operations if op.key[1] == REDUCE)
        tail = [(stage, LAYERNORM, 0), (stage, EMBEDDING, 0)]
        during = any(op.key[1] == SEPARATE for op in self.operations)
        tail += [(stage, SEPARATE, 0)] if during else reductions
        tail = [before, *tail, (stage, CLIP, 0), (stage, OPTIMIZER, 0)]
        self._chain(tail)
        if during and reductions:
            follows = next((key for key in tail[1:] if key in self.index), None)
            self._wait(follows, reductions[-1])
            seen: set[int] = set()
            for reduction in sorted(
                (op for op in operations if op.key[1] == REDUCE), key=lambda op: op.key[2]
            ):
                users = [
                    op for op in computed if op.key[1] == BACKWARD and op.part == reduction.part
                ]
                if reduction.part not in seen and users:
                    self._wait(reduction.key, max(users, key=lambda op: op.end).key)
                seen.add(reduction.part)

    def _meet(self) -> None:
        """Pair the messages, and collect the collectives."""
        for way, ahead in (("forward", 1), ("backward", -1)):
            for stage in range(self.stages):
                sent = self.messages.get((f"{way}-send", stage), [])
                peer = (stage + ahead) % self.stages
                received = self.messages.get((f"{way}-recv", peer), [])
                if len(sent) != len(received):
                    raise ValueError(
                        f"stage {stage} sends {len(sent)} {way} messages, "
                        f"stage {peer} receives {len(received)}"
                    )
                self.groups += [list(pair) for pair in zip(sent, received, strict=True)]
        embedding = [self.index.get((stage, EMBEDDING, 0)) for stage in (0, self.stages - 1)]
        self.groups.append(sorted({node for node in embedding if node is not None}))
        clip = [i for key, i in self.index.items() if key[1] == CLIP]
        self.groups.append(clip)
        self.wide = set(clip)
        for key, i in self.index.items():
            if key[1] in (GATHER, REDUCE, SEPARATE):
                self.groups.append([i])
                self.wide.add(i)
        self.groups = [group for group in self.groups if group]


def pipeline_graph(operations: pl.DataFrame) -> Graph:
    """Graph of one step on all ranks.

    Parameters
    ----------
    operations : polars.DataFrame
        With the columns of ``OPERATIONS``; names among :data:`KNOWN`; every replica has the same
        operations at the first step.

    Raises
    ------
    ValueError
        If the messages of neighbouring stages do not fit together.
    """
    first = operations.filter(pl.col("step") == operations["step"].min())
    replicas = first["dp"].unique().sort()
    one = first.filter(pl.col("dp") == replicas[0])
    read = [
        Operation(
            (stage, name, number),
            role,
            start,
            start + duration,
            -1 if part is None else part,
            micro,
        )
        for stage, name, number, role, start, duration, part, micro in one.select(
            "stage", "operation", "sequence", "role", "start", "duration", "part", "microbatch"
        ).iter_rows()
    ]
    replica = Replica(read)
    count, copies = len(read), len(replicas)
    offsets = [copy * count for copy in range(copies)]
    waits = [[node + offset for node in found] for offset in offsets for found in replica.waits]
    groups = []
    for group in replica.groups:
        shifted = [[node + offset for node in group] for offset in offsets]
        wide = replica.wide.issuperset(group)
        groups += [[node for found in shifted for node in found]] if wide else shifted
    messages = {i for i, op in enumerate(read) if op.key[1] in MESSAGES}
    met = messages | {node for group in replica.groups for node in group}
    nodes = _nodes(first, replicas, read)
    everywhere = [node + offset for offset in offsets for node in met]
    peers = nodes.select(pl.col("operation").rank("dense") - 1).to_series().to_numpy()
    return assemble(nodes, waits, groups, everywhere, peers=peers, robust=False)


def _nodes(first: pl.DataFrame, replicas: pl.Series, read: list[Operation]) -> pl.DataFrame:
    template = pl.DataFrame(
        {
            "stage": pl.Series([op.key[0] for op in read], dtype=pl.Int32),
            "operation": [op.key[1] for op in read],
            "sequence": pl.Series([op.key[2] for op in read], dtype=pl.Int32),
            "role": [op.role for op in read],
            "microbatch": pl.Series([op.microbatch for op in read], dtype=pl.Int32),
        }
    )
    ranks = first.select("dp", "stage", "rank").unique(("dp", "stage"), keep="first")
    return (
        pl.DataFrame({"dp": replicas})
        .join(template, how="cross", maintain_order="left_right")
        .join(ranks, on=("dp", "stage"), how="left", maintain_order="left")
        .select(list(NODES))
    )
