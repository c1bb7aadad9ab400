"""One rank of a small training: rank 1 computes more than the others, rank 2 loads more."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import reprolab as rl

STEPS, FROM = 40, 12


def labour():
    """Real work, not sleep: a few milliseconds of a core."""
    matrix = torch.full((256, 256), 0.01)
    for _ in range(12):
        matrix = torch.tanh(matrix @ matrix)
    return matrix


class Model(nn.Module):
    def __init__(self, slow):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        self.slow, self.step = slow, 0

    def forward(self, batch):
        if self.slow and self.step >= FROM:
            labour()
        self.step += 1
        return self.layers(batch)


def main(lab):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(slow=rank == 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def batches():
        for step in range(STEPS):
            if rank == 2 and step >= FROM:
                labour()
            yield torch.randn(32, 64), torch.randint(0, 10, (32,))

    with rl.record(lab, run="slow", model=model, optimizer=optimizer) as rec:
        for inputs, labels in rec.batches(batches()):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            rec.step(loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
