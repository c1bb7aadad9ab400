"""One rank that saves sharded state with torch.distributed.checkpoint; started by test_dcp.

Arguments: rank, world size, file to meet at, folder to save to. Rank 0 also saves the gathered
tensors beside the folder, as ``reference.pt``; every rank
saves some distributed tensors with ``torch.save``.
"""

import sys
import warnings
from pathlib import Path


def main(rank, world, meeting, folder):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model(torch.ones(4, 7) * (rank + 1)).square().mean().backward()
    optimizer.step()
    state, optimizer_state = get_state_dict(model, optimizer)
    grid = torch.arange(5 * 7 * 3, dtype=torch.int64).reshape(5, 7, 3)
    state = {
        "model": state,
        "optim": optimizer_state,
        "rows": distribute_tensor(grid, mesh, [Shard(0)]),
        "columns": distribute_tensor(grid.to(torch.bfloat16), mesh, [Shard(1)]),
        "depth": distribute_tensor(grid.to(torch.float64), mesh, [Shard(2)]),
        "same": distribute_tensor(grid[0].float(), mesh, [Replicate()]),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(4.5),
        "epoch": 3,
        "names": ["a", {"b": 2}],
    }
    dcp.save(state, checkpoint_id=folder)
    kept = {name: state[name] for name in ("rows", "same", "scalar")}
    torch.save(kept, Path(folder).with_name(f"rank-{rank}.pt"))
    whole = {}

    def gather(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                gather(f"{prefix}.{key}" if prefix else key, inner)
        elif isinstance(value, DTensor):
            whole[prefix] = value.full_tensor()
        elif isinstance(value, torch.Tensor):
            whole[prefix] = value

    gather("", state)
    if rank == 0:
        torch.save(whole, Path(folder).with_name("reference.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
