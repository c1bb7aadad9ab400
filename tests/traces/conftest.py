import json

import pytest


def kineto_events(rank, *, steps=4, late=0, old=False, base=0, grouped=True):
    """Events of one rank whose gradients are reduced twice a step; microseconds.

    The rank computes for 2 ms, `late` more, before the first collective; all ranks leave both
    together. All times are relative to `base`.
    """
    kernel, host, runtime = (
        ("Kernel", "Operator", "Runtime")
        if old
        else (
            "kernel",
            "cpu_op",
            "cuda_runtime",
        )
    )
    events = [{"ph": "M", "name": "process_name", "pid": 1, "ts": base, "args": {"name": "python"}}]

    def add(name, cat, start, dur, **args):
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": rank, "tid": 7, "ts": base + start}
            | {"dur": dur, "args": args}
        )

    correlation = 0
    slowest = 1000
    for step in range(steps):
        begin = 10_000 * step
        add(f"ProfilerStep#{step + 5}", "user_annotation", begin, 9_000)
        add("enumerate(DataLoader)#_Loader.__next__", "user_annotation", begin, 400)
        add("aten::mm", host, begin + 400, 100)
        add("gemm", kernel, begin + 500, 2_000 + late)
        entered = begin + 2_600 + late
        left = begin + 2_600 + slowest + 300
        for name, begins, ends in (
            ("AllReduce", entered, left),
            ("AllGather", left + 500, left + 900),
        ):
            correlation += 1
            add("cudaLaunchKernel", runtime, begin + 600, 5, correlation=correlation)
            told = f"ncclKernel_{name}_RING" if old else f"ncclDevKernel_{name}_Sum_f32_RING_LL"
            args = {"correlation": correlation, "stream": 20}
            if grouped and not old:
                args |= {"Process Group Name": "0", "dtype": "Float", "In msg nelems": 250}
            add(told, kernel, begins, ends - begins, **args)
        events.append({"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": base + begin, "id": step})
    return events


def write_kineto(path, rank, *, ranks=4, told=True, header=None, **how):
    """Write one rank's trace as the profiler does; `told` is whether it says its rank."""
    document = {"schemaVersion": 1, **(header or {})}
    if told:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
    document["traceEvents"] = kineto_events(rank, **how)
    path.write_text(json.dumps(document, indent=1))
    return path


@pytest.fixture
def kineto_folder(tmp_path):
    """Traces of four ranks; rank 2 comes 1 ms late to the first collective of each step."""
    folder = tmp_path / "traces"

    def make(**how):
        folder.mkdir(exist_ok=True)
        for rank in range(4):
            late = 1_000 if rank == 2 else 0
            write_kineto(folder / f"worker{rank}.pt.trace.json", rank, late=late, **how)
        return folder

    return make
