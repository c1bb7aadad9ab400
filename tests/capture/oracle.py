"""Trainings that never import reprolab; what they compute is the truth the recorded ones must meet.

``python oracle.py OUT WORLD:MODE,MODE...`` trains each mode on forked ranks and leaves, for each,
``OUT/<world>-<mode>-<rank>.npz``: losses and final parameters of an untouched training, and from a
second, identical one the tensors of every stream, read with means of torch that capture does not
use. The second must end in the same bits as the first.
"""

import os
import random
import socket
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 4
MICRO = {"accumulate": 3}
DDP = {
    "view_none": {"gradient_as_bucket_view": True},
    "view_keep": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
    "rerun": {"static_graph": True},
    "small_buckets": {"bucket_cap_mb": 0.001},
}
DISTRIBUTED_ONLY = ("view_none", "user_hook", "late_hook", "static", "raw", "small_buckets")
MODES = (
    "plain", "accumulate", "view_keep", "clip", "scaler", "fused_scaler", "two_optimizers",
    "unused", "rerun",
)  # fmt: skip


class Net(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.first = nn.Linear(12, 24)
        self.norm = nn.BatchNorm1d(24)
        self.second = nn.Linear(24, 24)
        self.layer = nn.LayerNorm(24)
        self.drop = nn.Dropout(0.2)
        self.spare = nn.Linear(24, 24)
        self.last = nn.Linear(24, 3)
        self.last_twin = nn.Linear(24, 3, bias=False)
        self.last_twin.weight = self.last.weight
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(False)

    def forward(self, x, spare):
        x = self.norm(torch.relu(self.first(x + self.frozen(x))))
        if self.mode == "rerun":
            x = x + checkpoint(self.block, x, use_reentrant=True)
        else:
            x = x + self.block(x)
        if spare:
            x = x + torch.tanh(self.spare(x))
        return {"scores": self.last(x) + 0.1 * self.last_twin(x)}

    def block(self, x):
        return self.drop(torch.relu(self.layer(self.second(x))))


class Unwatched:
    """Lets a training be."""

    @contextmanager
    def around(self, parts):
        yield self

    def batches(self, loader):
        return loader

    def reduced(self):
        pass

    def used(self, optimizer):
        pass

    def step(self, loss):
        pass


class Dumper(Unwatched):
    """Copies the tensors of every stream."""

    def __init__(self):
        self.tensors = {}

    @contextmanager
    def around(self, parts):
        self.raw, self.optimizers, self.scaler = parts["raw"], parts["optimizers"], parts["scaler"]
        self.now, self.micro, self.taken = 0, 0, set()
        handles = [
            parameter.register_hook(self._incoming(name, parameter))
            for name, parameter in self.raw.named_parameters()
            if parameter.requires_grad
        ]
        self._state()
        yield self
        for handle in handles:
            handle.remove()

    def keep(self, stream, name, tensor):
        self.tensors[f"{self.now}|{stream}|{name}"] = tensor.detach().clone().numpy()

    def batches(self, loader):
        for batch in loader:
            for place, tensor in enumerate(batch):
                self.keep("batch", f"{self.micro}/{place}", tensor)
            self.micro += 1
            yield batch

    def _incoming(self, name, parameter):
        def hook(gradient):
            # Runs before the gradient is accumulated, so the sum is formed here.
            local = gradient if parameter.grad is None else parameter.grad + gradient
            self.keep("grads_local", name, local)

        return hook

    def reduced(self):
        for name, parameter in self.raw.named_parameters():
            if parameter.grad is not None:
                self.keep("grads", name, parameter.grad)

    def used(self, optimizer):
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in self.raw.named_parameters():
            if parameter.grad is not None and id(parameter) in mine:
                self.keep("grads_used", name, parameter.grad)

    def step(self, loss):
        self.keep("loss", "loss", loss)
        self.now, self.micro = self.now + 1, 0
        self._state()

    def _state(self):
        self.keep("rng", "torch", torch.get_rng_state())
        for name, parameter in self.raw.named_parameters():
            self.keep("params", name, parameter)
        for name, buffer in self.raw.named_buffers():
            self.keep("buffers", name, buffer)
        for prefix, optimizer in self.optimizers.items():
            for name, parameter in self.raw.named_parameters():
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        self.keep("optimizer", f"{prefix}{name}.{key}", value)
            for g, group in enumerate(optimizer.param_groups):
                lr = torch.tensor(group["lr"], dtype=torch.float64)
                self.keep("optimizer", f"{prefix}param_groups.{g}.lr", lr)
        if self.scaler is not None and self.scaler._scale is not None:
            self.keep("optimizer", "scaler.scale", self.scaler._scale)


def build(mode, world, rank):
    torch.manual_seed(1)
    raw = Net(mode)
    model = raw
    if world > 1:
        model = DistributedDataParallel(raw, **DDP.get(mode, {}))
        if mode == "user_hook":
            model.register_comm_hook(None, fp16_compress_hook)
    parameters = list(raw.parameters())
    if mode == "two_optimizers":
        optimizers = {
            "weights.": torch.optim.SGD([p for p in parameters if p.ndim > 1], 0.1, momentum=0.9),
            "biases.": torch.optim.AdamW([p for p in parameters if p.ndim == 1], 0.01),
        }
    else:
        fused = {"fused": True} if mode == "fused_scaler" else {}
        optimizers = {"": torch.optim.AdamW(parameters, 0.01, **fused)}
    scaler = None
    if mode in ("scaler", "fused_scaler"):
        # So large a scale overflows at first: some steps are skipped, later ones are not.
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=2)
    torch.manual_seed(100 + rank)
    np.random.seed(200 + rank)  # noqa: NPY002
    random.seed(300 + rank)
    data = TensorDataset(torch.randn(64, 12), torch.randint(3, (64,)))
    loader = DataLoader(data, batch_size=5, shuffle=True)
    return {
        "raw": raw,
        "model": model,
        "optimizers": optimizers,
        "scaler": scaler,
        "loader": loader,
    }


def train(mode, rank, world, watch):
    parts = build(mode, world, rank)
    raw, model, optimizers = parts["raw"], parts["model"], parts["optimizers"]
    scaler = parts["scaler"]
    schedules = [
        torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9) for optimizer in optimizers.values()
    ]
    losses = []
    micro = MICRO.get(mode, 1)
    with watch.around(parts) as watched:
        if mode == "late_hook":
            model.register_comm_hook(None, fp16_compress_hook)
        done = 0
        for index, (x, y) in enumerate(watched.batches(parts["loader"])):
            last = (index + 1) % micro == 0
            spare = mode != "unused" or (done + rank) % 2 == 0
            silent = isinstance(model, DistributedDataParallel) and not last
            with model.no_sync() if silent else nullcontext():
                with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
                    loss = F.cross_entropy(model(x, spare)["scores"].float(), y) / micro
                (loss if scaler is None else scaler.scale(loss)).backward()
            if not last:
                continue
            watched.reduced()
            for optimizer in optimizers.values():
                if mode == "clip":
                    torch.nn.utils.clip_grad_norm_(raw.parameters(), 0.05)
                if mode == "scaler":
                    scaler.unscale_(optimizer)
                update(optimizer, scaler, watched)
            if scaler is not None:
                scaler.update()
            for schedule in schedules:
                schedule.step()
            for optimizer in optimizers.values():
                optimizer.zero_grad(set_to_none=mode != "view_keep")
            # Noise that depends on every generator, so that a draw too many would show.
            with torch.no_grad():
                raw.last.bias += 1e-3 * (torch.rand(()) + np.random.rand() + random.random())  # noqa: NPY002
            losses.append(loss.detach().clone())
            watched.step(loss)
            done += 1
            if done == STEPS:
                break
    final = {f"final|{n}": t.detach().clone() for n, t in raw.state_dict().items()}
    return {"losses": torch.stack(losses), **final}


def update(optimizer, scaler, watched):
    if scaler is None:
        watched.used(optimizer)
        optimizer.step()
        return
    # Only the scaler knows whether it will step, so the last moment before is made visible here.
    step = optimizer.step

    def shown(*args, **kwargs):
        fused = getattr(optimizer, "grad_scale", None) is not None
        if not fused:
            watched.used(optimizer)
        result = step(*args, **kwargs)
        if fused:
            watched.used(optimizer)
        return result

    optimizer.step = shown
    scaler.step(optimizer)
    optimizer.step = step


def same(a, b):
    return a.keys() == b.keys() and all(
        a[key].numpy().tobytes() == b[key].numpy().tobytes() for key in a
    )


def run_oracle(out, world, mode, rank):
    result = train(mode, rank, world, Unwatched())
    dumper = Dumper()
    again = train(mode, rank, world, dumper)
    assert same(result, again), f"reading the tensors changed {mode} on {world} ranks"
    arrays = {name: tensor.numpy() for name, tensor in result.items()}
    np.savez(out / f"{world}-{mode}-{rank}.npz", **arrays, **dumper.tensors)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_ranks(world, action):
    """Fork `world` ranks, run `action(rank)` on each; true if all ended well."""
    port = free_port()
    ranks = []
    for rank in range(world):
        child = os.fork()
        if child:
            ranks.append(child)
            continue
        code = 1
        try:
            torch.set_num_threads(1)
            if world > 1:
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                dist.init_process_group("gloo", rank=rank, world_size=world)
            action(rank)
            if world > 1:
                dist.barrier()
                dist.destroy_process_group()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return all([os.waitpid(child, 0)[1] == 0 for child in ranks])  # noqa: C419 - wait for all


def main(run):
    out = Path(sys.argv[1])
    well = True
    for job in sys.argv[2:]:
        world, _, modes = job.partition(":")

        def action(rank, world=int(world), modes=modes):
            for mode in modes.split(","):
                run(out, world, mode, rank)

        well = on_ranks(int(world), action) and well
    sys.exit(not well)


if __name__ == "__main__":
    assert "reprolab" not in sys.modules
    main(run_oracle)
    assert "reprolab" not in sys.modules
