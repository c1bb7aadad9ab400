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
from pathlib import Path
from time import perf_counter

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

    def step(rec: rl.capture.Recorder | None) -> float:
        tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))
        if world > 1:
            dist.barrier()
        began = perf_counter()
        if rec is not None:
            rec.batch(tokens)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rec is not None:
            rec.step(loss=loss)
        return perf_counter() - began

    def block(number: int, recorded: bool) -> list[float]:
        if not recorded:
            return [step(None) for _ in range(steps)]
        run = f"{world}-{number}"
        with rl.record(lab, run=run, model=model, optimizer=optimizer) as rec:
            times = [step(rec) for _ in range(steps)]
        check(Path(lab) / run, rank, raw, steps)
        return times

    block(0, recorded=True)
    times: dict[str, list[list[float]]] = {"plain": [], "recorded": []}
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
    # The first step of a block pays for what is set up once a run.
    plain = [time for block in found["plain"] for time in block[1:]]
    recorded = [time for block in found["recorded"] for time in block[1:]]
    # Ratios of neighbouring blocks, because other load on the machine drifts.
    ratios = [
        statistics.median(with_[1:]) / statistics.median(without[1:])
        for with_, without in zip(found["recorded"], found["plain"], strict=True)
    ]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "overhead": middle,
        "spread": high - low,
        "plain_s": statistics.median(plain),
        "recorded_s": statistics.median(recorded),
        "capture_s": found["capture"],
        "parameters": found["parameters"],
        "steps": len(plain),
    }


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
    print(f"{'ranks':>5} {'plain':>9} {'recorded':>9} {'capture':>9} {'overhead':>9} {'spread':>7}")
    for world, result in results.items():
        print(
            f"{world:>5} {1e3 * result['plain_s']:>6.1f} ms {1e3 * result['recorded_s']:>6.1f} ms "
            f"{1e3 * result['capture_s']:>6.1f} ms {result['overhead']:>9.4f} "
            f"{result['spread']:>7.4f}"
        )


def free_port() -> int:
    """A port nobody listens on."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store.port


if __name__ == "__main__":
    main()
