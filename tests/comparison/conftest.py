"""Real runs on disk: a small training in NumPy, recorded through the store's writers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from reprolab.errors import RankTimeout
from reprolab.kernels import fingerprint_stream
from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.vocabulary import Layout, TensorSpec


class Table:
    """The ranks of one test meet in memory; each rank is a thread."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.messages = {}
        self.changed = threading.Condition()

    def seat(self, rank):
        return Seat(self, rank)


@dataclass
class Seat:
    table: Table
    rank: int

    @property
    def world_size(self):
        return self.table.world_size

    def post(self, key, payload):
        with self.table.changed:
            self.table.messages.setdefault(key, {})[self.rank] = payload
            self.table.changed.notify_all()

    def collect(self, key, timeout):
        def complete():
            return len(self.table.messages.get(key, ())) == self.world_size

        with self.table.changed:
            if not self.table.changed.wait_for(complete, timeout):
                raise RankTimeout(f"not all ranks posted {key!r}")
            return [self.table.messages[key][rank] for rank in range(self.world_size)]


@dataclass
class Training:
    """A two-layer regression trained with momentum on `ranks` replicas.

    `change(step, stream, rank, tensors)` may alter the live arrays of a stream in place just
    before they are recorded, so that the training goes on with them; `lie` may replace them in the
    record alone.
    """

    steps: int = 6
    ranks: int = 2
    seed: int = 0
    config: dict = field(default_factory=lambda: {"optim": {"lr": 0.05}, "seed": 0})
    environment: dict = field(default_factory=lambda: {"threads": {"torch": 1}})
    streams: tuple = (
        "rng",
        "params",
        "buffers",
        "optimizer",
        "batch",
        "loss",
        "grads_local",
        "grads",
        "grads_used",
    )
    every: int = 1
    micro: int = 1
    block_bytes: int = 64
    checkpoint_every: int | None = None
    width: int = 8
    rename: dict = field(default_factory=dict)
    extra: tuple = ()
    change: Callable | None = None
    lie: Callable | None = None
    close: bool = False  # folding takes most of the time of a test
    reason: str = "finished"
    metrics: Callable | None = None

    def write(self, lab, name="run"):
        """Train and record; returns the run."""
        policy = Policy(
            streams=self.streams,
            every=self.every,
            block_bytes=self.block_bytes,
            checkpoint_every=self.checkpoint_every,
            rank_timeout=20,
        )
        table = Table(self.ranks)
        with ThreadPoolExecutor(self.ranks) as threads:

            def everywhere(act):
                return list(threads.map(act, range(self.ranks)))

            writers = everywhere(
                lambda rank: begin_run(
                    lab,
                    name,
                    rendezvous=table.seat(rank) if self.ranks > 1 else Alone(),
                    config=self.config,
                    mesh={"dp": self.ranks},
                    policy=policy,
                    environment={**self.environment, "process": {"pid": 100 + rank}},
                    code={"git": None},
                )
            )
            self._train(writers, everywhere)
            if self.close:
                for writer in writers:
                    writer.fact("end", self.steps, reason=self.reason)
                    writer.close()
            else:
                for writer in writers:
                    writer.flush()
        return open_run(Path(lab) / name)

    def _train(self, writers, everywhere):
        start = np.random.default_rng(self.seed)
        shapes = {"w1": (self.width, 6), "b1": (6,), "w2": (6, 1)}
        params = {
            name: start.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
        }
        states = [
            {
                "params": {name: value.copy() for name, value in params.items()}
                | {name: np.full(3, 0.5, np.float32) for name in self.extra},
                "buffers": {"mean": np.zeros(6, np.float32)},
                "optimizer": {f"{name}.momentum": np.zeros_like(params[name]) for name in params}
                | {"param_groups.0.lr": np.array(self.config["optim"]["lr"])},
            }
            for _ in writers
        ]
        draws = [np.random.default_rng(100 * self.seed + rank) for rank in range(self.ranks)]
        for step in range(self.steps + 1):
            for rank, writer in enumerate(writers):
                self._put(writer, step, "rng", {"numpy": _state(draws[rank])})
                for stream, tensors in states[rank].items():
                    self._put(writer, step, stream, tensors)
            if self.checkpoint_every and step % self.checkpoint_every == 0:
                everywhere(lambda rank, at=step: self._save(writers[rank], at, states[rank]))
            if step < self.steps:
                self._step(step, writers, states, draws)
            for writer in writers:
                writer.flush()

    @np.errstate(over="ignore", invalid="ignore")
    def _step(self, step, writers, states, draws):
        local = []
        for rank, writer in enumerate(writers):
            held, grads = states[rank]["params"], None
            batch = {
                f"{index}/{name}": draws[rank].normal(size=(4, width)).astype(np.float32)
                for index in range(self.micro)
                for name, width in (("x", self.width), ("y", 1))
            }
            self._put(writer, step, "batch", batch)
            writer.fact(
                "batch", step, index=0, ids=[f"{rank}-{step}-{i}" for i in range(4)], sizes={}
            )
            losses = []
            for index in range(self.micro):
                loss, part = _gradients(held, batch[f"{index}/x"], batch[f"{index}/y"])
                losses.append(loss)
                grads = part if grads is None else {k: grads[k] + part[k] for k in part}
            states[rank]["buffers"]["mean"] *= np.float32(0.9)
            states[rank]["buffers"]["mean"] += batch["0/x"].mean() * np.float32(0.1)
            loss = {"loss": np.asarray(np.mean(losses), np.float32)}
            self._put(writer, step, "loss", loss)
            self._put(writer, step, "grads_local", grads)
            local.append(grads)
            writer.fact("span", step, name="forward", start=float(step), duration=0.5)
            writer.fact("metric", step, name="loss", value=float(loss["loss"]))
            for name, value in (self.metrics(step, rank) if self.metrics else {}).items():
                writer.fact("metric", step, name=name, value=value)
        mean = {
            name: np.sum([part[name] for part in local], axis=0) * np.float32(1 / len(local))
            for name in local[0]
        }
        for rank, writer in enumerate(writers):
            grads = {name: value.copy() for name, value in mean.items()}
            self._put(writer, step, "grads", grads)
            used = {name: np.clip(value, -1, 1) for name, value in grads.items()}
            self._put(writer, step, "grads_used", used)
            state = states[rank]
            lr = np.float32(state["optimizer"]["param_groups.0.lr"])
            for name, value in used.items():
                momentum = state["optimizer"][f"{name}.momentum"]
                momentum *= np.float32(0.9)
                momentum += value
                state["params"][name] -= lr * momentum

    def _put(self, writer, step, stream, tensors):
        if self.change:
            self.change(step, stream, writer.rank, tensors)
        if stream not in self.streams or step % self.every:
            return
        shown = {self.rename.get(name, name): value for name, value in tensors.items()}
        if self.lie:
            shown = {name: np.array(value) for name, value in shown.items()}
            shown = self.lie(step, stream, writer.rank, shown) or shown
        layout = Layout(tuple(_spec(*item) for item in shown.items()), self.block_bytes)
        writer.fingerprint(step, stream, layout, fingerprint_stream(list(shown.values()), layout))

    def _save(self, writer, step, state):
        tensors = {
            stream: [
                (_spec(name, value), np.ascontiguousarray(value)) for name, value in held.items()
            ]
            for stream, held in state.items()
        }
        writer.checkpoint(step, tensors)


def _spec(name, value):
    return TensorSpec(name, value.dtype.name, value.shape)


def _state(generator):
    state = generator.bit_generator.state["state"]
    data = state["state"].to_bytes(16, "little") + state["inc"].to_bytes(16, "little")
    return np.frombuffer(data, np.uint8).copy()


def _gradients(params, x, y):
    hidden = np.maximum(x @ params["w1"] + params["b1"], 0)
    error = hidden @ params["w2"] - y
    back = (error @ params["w2"].T) * (hidden > 0)
    scale = np.float32(2 / len(x))
    return float((error**2).mean()), {
        "w2": hidden.T @ error * scale,
        "b1": back.sum(0) * scale,
        "w1": x.T @ back * scale,
    }


@pytest.fixture(scope="session")
def training():
    """The class :class:`Training`."""
    return Training


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A new folder at each call, for tests that run many times."""
    return lambda: tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def sound(folder):
    """A run in which nothing is wrong: six steps on two ranks, checkpoints at 0, 3, 6."""
    return Training(checkpoint_every=3, close=True).write(folder(), "sound")


@pytest.fixture
def train(tmp_path):
    """Train and record one run with the settings of :class:`Training`."""

    def trained(name, **settings):
        return Training(**settings).write(tmp_path, name)

    return trained


@pytest.fixture(scope="session")
def at():
    """A change that acts at one step and stream, on one rank or several."""

    def placed(step, stream, ranks, act):
        def change(now, where, rank, tensors):
            if (now, where) == (step, stream) and rank in ranks:
                act(tensors)

        return change

    return placed
