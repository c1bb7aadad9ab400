"""One rank of a demo training: ``python -m reprolab.demo.worker``, settings on standard input."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import reprolab as rl
from reprolab.demo.model import ByteModel
from reprolab.demo.settings import Settings
from reprolab.demo.text import windows


def batches(settings: Settings, rank: int, world_size: int) -> Iterator[list[torch.Tensor]]:
    """Batches of this rank, epoch after epoch, without end."""
    data = TensorDataset(windows(settings.windows, settings.context + 1))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        data, world_size, rank, seed=settings.seed, drop_last=True
    )
    loader = DataLoader(data, settings.batch_size, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch if settings.reshuffle else 0)
        yield from loader
        epoch += 1


def seed(number: int) -> None:
    """Seed every generator there is, used or not."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the global generator is the one to seed
    torch.manual_seed(number)


def flip(tensor: torch.Tensor, element: int, bit: int) -> None:
    """Flip one bit of one float32 element, as a particle or a worn cell would."""
    tensor.detach().view(-1).view(torch.int32)[element] ^= 1 << bit


def train(settings: Settings) -> None:
    """Train on this rank and record every step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    seed(settings.seed)
    raw = ByteModel(
        settings.context, settings.width, settings.depth, settings.heads, settings.dropout
    )
    model: nn.Module = raw
    if world_size > 1:
        model = DistributedDataParallel(raw, bucket_cap_mb=settings.bucket_cap_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: settings.lr_factor if step >= settings.lr_factor_from else 1.0
    )
    torch.manual_seed(1000 * settings.dropout_seed + rank)
    policy = rl.Policy(checkpoint_every=settings.checkpoint_every, block_bytes=settings.block_bytes)

    with rl.record(
        settings.lab,
        run=settings.run,
        model=model,
        optimizer=optimizer,
        config=settings.config,
        policy=policy,
    ) as rec:
        for step, (tokens,) in enumerate(rec.batches(batches(settings, rank, world_size))):
            scores = model(tokens[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step + 1 == settings.flip_before and rank == settings.flip_rank % world_size:
                flip(
                    raw.get_parameter(settings.flip_tensor),
                    settings.flip_element,
                    settings.flip_bit,
                )
            rec.step(loss=loss)
            if rank == 0:
                print(f"step {step + 1} {loss.item():.4f}", flush=True)
            if step + 1 == settings.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    train(Settings.from_json(sys.stdin.readline()))
