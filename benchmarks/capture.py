"""What recording costs: step time with every stream captured at every step, over step time without.

A transformer of about 10 M parameters, 8 x 128 tokens a rank, one torch thread, in one process and
on two. Blocks of plain and of recorded steps take turns in the same processes; each recorded block
is a run of its own, and its fingerprints are read back and checked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from itertools import chain
from pathlib import Path
from time import perf_counter, process_time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import reprolab as rl
from reprolab.kernels import fingerprint
from reprolab.vocabulary import STATE_STREAMS, STREAMS

VOCABULARY, WIDTH, DEPTH, HEADS = 256, 384, 6, 6
BATCH, TOKENS = 8, 128


class Transformer(nn.Module):
    """A small decoder with dropout and norms."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.zeros(TOKENS, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        self.register_buffer("mask", mask)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token."""
        return self.head(self.layers(self.embed(tokens) + self.place, self.mask, is_causal=True))


def measure(rank: int, world: int, port: int, rounds: int, steps: int, lab: str) -> None:
    """Time all blocks on one rank; rank 0 leaves the times in the lab."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: nn.Module = Transformer()
    raw = model
    if world > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo", rank=rank, world_size=world)
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(rank)

    def step(rec: rl.capture.Recorder | None) -> tuple[float, float]:
        tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))
        if world > 1:
            dist.barrier()
        began, worked = perf_counter(), process_time()
        if rec is not None:
            rec.batch(tokens)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rec is not None:
            rec.step(loss=loss)
        return perf_counter() - began, process_time() - worked

    def block(number: int, recorded: bool) -> list[tuple[float, float]]:
        if not recorded:
            return [step(None) for _ in range(steps)]
        run = f"{world}-{number}"
        with rl.record(lab, run=run, model=model, optimizer=optimizer) as rec:
            times = [step(rec) for _ in range(steps)]
        check(Path(lab) / run, rank, raw, steps)
        return times

    block(0, recorded=True)
    times: dict[str, list[list[tuple[float, float]]]] = {"plain": [], "recorded": []}
    for number in range(1, rounds + 1):
        order = ("plain", "recorded") if number % 2 else ("recorded", "plain")
        for kind in order:
            times[kind].append(block(number, kind == "recorded"))
    if rank == 0:
        spans = [
            fact["duration"]
            for fact in rl.open_run(Path(lab) / f"{world}-{rounds}").facts(0)
            if fact["kind"] == "span" and fact["name"] == "capture"
        ]
        found = {**times, "capture": statistics.median(spans)}
        found["parameters"] = sum(p.numel() for p in raw.parameters())
        (Path(lab) / f"{world}.json").write_text(json.dumps(found))
    if world > 1:
        dist.destroy_process_group()


def check(path: Path, rank: int, model: nn.Module, steps: int) -> None:
    """Every stream is there at every step, and the last parameters are what the model holds."""
    reader = rl.open_run(path).fingerprints(rank)
    for stream in (name for name in STREAMS if name != "activations"):
        last = steps + 1 if stream in STATE_STREAMS else steps
        assert list(reader.steps(stream)) == list(range(last)), stream
        for number in range(last):
            assert reader.tensor_moments(stream, number)[:, 0].all(), (stream, number)
    digests = reader.tensor_digests("params", steps)
    expected = [fingerprint(parameter).total().digest[0] for parameter in model.parameters()]
    assert digests.tolist() == [int(digest) for digest in expected]


def summary(found: dict) -> dict[str, float]:
    """Medians over all steps; the overhead is the median of the rounds' ratios."""
    wall, worked = ({kind: pick(found[kind], n) for kind in ("plain", "recorded")} for n in (0, 1))
    low, middle, high = statistics.quantiles(ratios(wall), n=4)
    return {
        "overhead": middle,
        "spread": high - low,
        # Processor time hardly sees what else the machine does, so it checks the number above.
        "cpu_overhead": statistics.median(ratios(worked)),
        "plain_s": statistics.median(chain(*wall["plain"])),
        "recorded_s": statistics.median(chain(*wall["recorded"])),
        "capture_s": found["capture"],
        "parameters": found["parameters"],
        "rounds": len(wall["plain"]),
    }


def pick(blocks: list, place: int) -> list[list[float]]:
    """One of the two times of each step, but the first: it pays for what is set up once a run."""
    return [[times[place] for times in block[1:]] for block in blocks]


def ratios(times: dict[str, list[list[float]]]) -> list[float]:
    """Recorded over plain, of neighbouring blocks, because other load on the machine drifts."""
    pairs = zip(times["recorded"], times["plain"], strict=True)
    return [statistics.median(a) / statistics.median(b) for a, b in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--rounds", type=int, default=12, help="plain and recorded blocks")
    parser.add_argument("--steps", type=int, default=4, help="steps a block")
    choices = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as lab:
        for world in (1, 2):
            arguments = (world, free_port(), choices.rounds, choices.steps, lab)
            mp.spawn(measure, arguments, nprocs=world)
            results[world] = summary(json.loads((Path(lab) / f"{world}.json").read_text()))
    flat = {"overhead": max(result["overhead"] for result in results.values())}
    for world, result in results.items():
        flat |= {f"{key}_{world}": value for key, value in result.items()}
    if choices.json:
        print(json.dumps(flat))
        return
    print("ranks     plain  recorded   capture  overhead  spread  by processor time")
    for world, result in results.items():
        print(
            f"{world:>5} {1e3 * result['plain_s']:>6.1f} ms {1e3 * result['recorded_s']:>6.1f} ms "
            f"{1e3 * result['capture_s']:>6.1f} ms {result['overhead']:>9.4f} "
            f"{result['spread']:>7.4f} {result['cpu_overhead']:>18.4f}"
        )


def free_port() -> int:
    """A port nobody listens on."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store.port


if __name__ == "__main__":
    main()
