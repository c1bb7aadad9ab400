"""Small runs on disk: a least-squares training in NumPy on two ranks, written as capture would."""

from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import numpy as np
import pytest

from reprolab.comparison import compare
from reprolab.errors import RankTimeout
from reprolab.kernels import fingerprint_stream
from reprolab.policy import Policy
from reprolab.store import begin_run
from reprolab.vocabulary import Layout, TensorSpec

BLOCK = 4096
SHAPES = {
    "embed.weight": (48, 64),
    "layers.0.bias": (64,),
    "layers.0.weight": (64, 64),
    "scale": (),
}
UGLY = {
    "embed.weight": "<script>document.title='owned'</script>",
    "layers.0.bias": "<img src=x onerror=\"document.title='owned'\">.bias",
    "layers.0.weight": "a very long name " * 12,
    "scale": "{{7*7}} & \u202eelacs",
}


class Meeting:
    """A rendezvous of threads."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.posted = {}
        self.changed = Condition()

    def at(self, rank):
        return _Seat(self, rank)


class _Seat:
    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.world_size = meeting, rank, meeting.world_size

    def post(self, key, payload):
        with self.meeting.changed:
            self.meeting.posted[key, self.rank] = payload
            self.meeting.changed.notify_all()

    def collect(self, key, timeout):
        keys = [(key, rank) for rank in range(self.world_size)]
        posted = self.meeting.posted
        with self.meeting.changed:
            if not self.meeting.changed.wait_for(lambda: all(k in posted for k in keys), timeout):
                raise RankTimeout(f"nobody came to {key!r}", rank=self.rank)
            return [posted[k] for k in keys]


def train(
    lab, run, *, steps=12, ranks=2, part_at=None, streams=None, names=None, broken_at=None,
    config=None,
):  # fmt: skip
    """Train and record; from step `part_at` on the gradients are summed in another precision.

    At step `broken_at` one gradient holds a NaN on rank 1.
    """
    names = names or {}
    specs = [TensorSpec(names.get(name, name), "float32", shape) for name, shape in SHAPES.items()]
    forward, backward = Layout(tuple(specs), BLOCK), Layout(tuple(specs[::-1]), BLOCK)
    loss_layout = Layout((TensorSpec("loss", "float32", ()),), BLOCK)
    meeting = Meeting(ranks)

    def begin(rank):
        return begin_run(
            lab, run, rendezvous=meeting.at(rank), config=config or {"lr": 0.05},
            mesh={"dp": ranks}, policy=Policy(block_bytes=BLOCK), timeout=10,
            environment={"python": "3.11"}, code={},
        )  # fmt: skip

    with ThreadPoolExecutor(ranks) as pool:
        writers = list(pool.map(begin, range(ranks)))
    rng = np.random.default_rng(0)
    params = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES.values()]
    targets = [
        [rng.normal(size=shape).astype(np.float32) for shape in SHAPES.values()]
        for _ in range(ranks)
    ]

    def write(writer, step, stream, layout, tensors):
        if streams is None or stream in streams:
            writer.fingerprint(step, stream, layout, fingerprint_stream(tensors, layout))

    for step in range(steps):
        local = [[np.asarray(p - t) for p, t in zip(params, mine, strict=True)] for mine in targets]
        exact = part_at is None or step < part_at
        grads = [
            sum(parts) / np.float32(ranks)
            if exact
            else (np.sum(parts, axis=0, dtype=np.float64) * 1.0000001 / ranks).astype(np.float32)
            for parts in zip(*local, strict=True)
        ]
        grads = [np.asarray(grad, np.float32) for grad in grads]
        if step == broken_at:
            grads[1] = grads[1].copy()
            grads[1].flat[3] = np.nan
        for rank, writer in enumerate(writers):
            loss = np.float32(sum(float((g * g).sum()) for g in local[rank]))
            write(writer, step, "params", forward, params)
            write(writer, step, "loss", loss_layout, [np.asarray(loss)])
            write(writer, step, "grads_local", backward, local[rank][::-1])
            write(writer, step, "grads", backward, grads[::-1])
            if streams is None or "loss" in streams:
                writer.fact("metric", step, name="loss", value=float(loss))
            writer.flush()
        clean = [np.nan_to_num(grad) for grad in grads]
        params = [
            np.asarray(p - np.float32(0.05) * g, np.float32)
            for p, g in zip(params, clean, strict=True)
        ]
    for writer in writers:
        writer.fact("end", steps, reason="finished")
        writer.close()
    return lab / run


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Paths of runs, each trained once; ``trained("name", part_at=3, ...)``."""
    lab = tmp_path_factory.mktemp("lab")
    known = {}

    def get(name, **options):
        if name not in known:
            known[name] = train(lab, name, **options)
        return known[name]

    return get


@pytest.fixture(scope="session")
def parted(trained):
    """Two runs that part at step 3 in the reduced gradients."""
    return compare(trained("baseline"), trained("again", part_at=3, config={"lr": "<b>0.05</b>"}))


@pytest.fixture(scope="session")
def same(trained):
    return compare(trained("baseline"), trained("twin"))


@pytest.fixture(scope="session")
def ugly(trained):
    """Two runs whose tensors' names are markup; one gradient holds a NaN at step 5."""
    return compare(
        trained("ugly", names=UGLY), trained("uglier", names=UGLY, part_at=0, broken_at=5)
    )
