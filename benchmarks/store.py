"""How fast 1 GiB of tensors is written and read, beside the formats that others use.

Every contender writes the same tensors into a folder of its own and reads them back, in turns and
several times; medians count. What is read comes from the page cache. On Linux the process keeps the
memory that it frees, so from the first, uncounted turn on nobody waits for fresh pages, which can
cost more than the reading.
*Synced* is the time until the bytes are on the disk. ``reprolab_checkpoint`` is the whole of it:
digests, plan, synced chunks, commit; ``reprolab`` is the chunk writer and reader alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import safetensors.numpy
import tensorstore
import torch
import torch.distributed.checkpoint as dcp
import zarr
from tqdm.auto import tqdm
from zarr.codecs import BytesCodec, Crc32cCodec

from reprolab.policy import Policy
from reprolab.store import Alone, begin_run, open_run
from reprolab.store.arrays import array_metadata
from reprolab.store.chunks import WriteRequest, read_chunks, write_requests
from reprolab.store.durable import sync_all
from reprolab.store.grid import Grid
from reprolab.vocabulary import TensorSpec

Tensors = Mapping[str, np.ndarray]
SIDE = 4096
THREADS = 4


def sync_below(folder: Path) -> None:
    sync_all([folder, *folder.rglob("*")])


def write_chunks(folder: Path, tensors: Tensors, sync: bool) -> None:
    requests = []
    for name, held in tensors.items():
        place = folder / name
        place.mkdir()
        grid = Grid.fit(held.shape, held.itemsize)
        metadata = array_metadata("float32", grid.shape, grid.chunk, {})
        requests.append(WriteRequest(place / "zarr.json", metadata))
        flat = held.reshape(-1)
        for number in range(grid.size):
            part = grid.elements(number)
            data = flat[part.start : part.stop].view(np.uint8)
            path = place / grid.key(number)
            requests.append(WriteRequest(path, data, grid.chunk_size * held.itemsize))
    write_requests(requests, sync=sync)


def read_own_chunks(folder: Path, tensors: Tensors) -> Tensors:
    found = {}
    for name, held in tensors.items():
        grid = Grid.fit(held.shape, held.itemsize)
        found[name] = np.empty(held.shape, held.dtype)
        flat = found[name].reshape(-1)
        parts = [
            flat[part.start : part.stop].view(np.uint8)
            for part in map(grid.elements, range(grid.size))
        ]
        files = [folder / name / grid.key(number) for number in range(grid.size)]
        read_chunks(files, grid.chunk_size * held.itemsize, parts)
    return found


def write_checkpoint(folder: Path, tensors: Tensors, sync: bool) -> None:
    writer = begin_run(
        folder,
        "run",
        rendezvous=Alone(),
        config={},
        mesh={"dp": 1},
        policy=Policy(),
        environment={},
        code={},
    )
    specs = [(TensorSpec(name, "float32", held.shape), held) for name, held in tensors.items()]
    writer.checkpoint(0, {"params": specs})
    writer.close()


def read_checkpoint(folder: Path, tensors: Tensors) -> Tensors:
    checkpoint = open_run(folder / "run").checkpoint(0)
    return {name: checkpoint.read("params", name) for name in tensors}


def write_torch(folder: Path, tensors: Tensors, sync: bool) -> None:
    torch.save({n: torch.from_numpy(held) for n, held in tensors.items()}, folder / "all.pt")
    if sync:
        sync_below(folder)


def read_torch(folder: Path, tensors: Tensors) -> Tensors:
    found = torch.load(folder / "all.pt", weights_only=True)
    return {name: tensor.numpy() for name, tensor in found.items()}


def write_safetensors(folder: Path, tensors: Tensors, sync: bool) -> None:
    safetensors.numpy.save_file(dict(tensors), folder / "all.safetensors")
    if sync:
        sync_below(folder)


def read_safetensors(folder: Path, tensors: Tensors) -> Tensors:
    return safetensors.numpy.load_file(folder / "all.safetensors")


def write_dcp(folder: Path, tensors: Tensors, sync: bool) -> None:
    storage = dcp.FileSystemWriter(folder, sync_files=sync, thread_count=THREADS)
    state = {name: torch.from_numpy(held) for name, held in tensors.items()}
    dcp.save(state, storage_writer=storage, no_dist=True)
    if sync:
        sync_all([folder])


def read_dcp(folder: Path, tensors: Tensors) -> Tensors:
    state = {name: torch.empty(held.shape) for name, held in tensors.items()}
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


def write_zarr(folder: Path, tensors: Tensors, sync: bool) -> None:
    for name, held in tensors.items():
        array = zarr.create_array(
            folder / name,
            shape=held.shape,
            chunks=Grid.fit(held.shape, held.itemsize).chunk,
            dtype=held.dtype,
            serializer=BytesCodec(),
            compressors=[Crc32cCodec()],
        )
        array[...] = held
    if sync:
        sync_below(folder)


def read_zarr(folder: Path, tensors: Tensors) -> Tensors:
    return {name: zarr.open_array(folder / name, mode="r")[...] for name in tensors}


def open_tensorstore(folder: Path, **others: object) -> tensorstore.Future:
    kvstore = {"driver": "file", "path": str(folder)}
    return tensorstore.open({"driver": "zarr3", "kvstore": kvstore, **others})


def write_tensorstore(folder: Path, tensors: Tensors, sync: bool) -> None:
    writes = []
    for name, held in tensors.items():
        chunk = Grid.fit(held.shape, held.itemsize).chunk
        metadata = {
            "shape": held.shape,
            "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
        }
        context = {"file_io_sync": sync}
        array = open_tensorstore(folder / name, create=True, metadata=metadata, context=context)
        writes.append(array.result().write(held))
    for write in writes:
        write.result()


def read_tensorstore(folder: Path, tensors: Tensors) -> Tensors:
    arrays = {name: open_tensorstore(folder / name, open=True) for name in tensors}
    reads = {name: array.result().read(order="C") for name, array in arrays.items()}
    return {name: read.result() for name, read in reads.items()}


def keep_freed_memory() -> None:
    """Let malloc take large pieces from the heap, and never give any back."""
    if sys.platform == "linux":
        mmap_max, trim_threshold, arena_max = -4, -1, -8
        libc = ctypes.CDLL(None)
        for option, value in ((mmap_max, 0), (trim_threshold, -1), (arena_max, 1)):
            libc.mallopt(option, value)


Write = Callable[[Path, Tensors, bool], None]
Read = Callable[[Path, Tensors], Tensors]
CONTENDERS: dict[str, tuple[Write, Read]] = {
    "reprolab": (write_chunks, read_own_chunks),
    "reprolab_checkpoint": (write_checkpoint, read_checkpoint),
    "torch_save": (write_torch, read_torch),
    "safetensors": (write_safetensors, read_safetensors),
    "torch_dcp": (write_dcp, read_dcp),
    "zarr_python": (write_zarr, read_zarr),
    "tensorstore": (write_tensorstore, read_tensorstore),
}


def measure(
    name: str, root: Path, tensors: Tensors, times: dict[str, list[float]], check: bool
) -> None:
    """One turn of one contender: write, write until it is on the disk, read."""
    write, read = CONTENDERS[name]
    for sync in (False, True):
        if write is write_checkpoint and not sync:
            continue
        folder = Path(tempfile.mkdtemp(dir=root))
        # Nobody pays for what another left to be written.
        os.sync()
        began = perf_counter()
        write(folder, tensors, sync)
        seconds = perf_counter() - began
        times.setdefault(f"{name}_write_synced" if sync else f"{name}_write", []).append(seconds)
        if sync:
            began = perf_counter()
            found = read(folder, tensors)
            times.setdefault(f"{name}_read", []).append(perf_counter() - began)
            assert not check or all(np.array_equal(found[n], tensors[n]) for n in tensors)
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--mib", type=int, default=1024, help="how much to write")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    options = parser.parse_args()
    keep_freed_memory()
    # DCP warns of one process and of tensors without a device.
    warnings.simplefilter("ignore")

    rng = np.random.default_rng(0)
    count = max(1, options.mib // 64)
    tensors = {
        f"w{number}": rng.standard_normal((SIDE, SIDE), np.float32) for number in range(count)
    }
    nbytes = sum(held.nbytes for held in tensors.values())
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        for turn in tqdm(range(options.repeats + 1), unit="turn", disable=None):
            for name in CONTENDERS:
                # The first turn warms up and checks.
                kept = times if turn else {}
                measure(name, Path(root), tensors, kept, check=turn == 0)

    speeds = {key: nbytes / statistics.median(held) / 1e9 for key, held in times.items()}
    if options.json:
        facts = {"mib": nbytes >> 20, "repeats": options.repeats}
        print(json.dumps({**facts, **{key: round(speed, 3) for key, speed in speeds.items()}}))
        return
    print(f"GB/s, median of {options.repeats}, {nbytes >> 20} MiB in {count} tensors\n")
    print(f"{'':22}{'write':>10}{'synced':>10}{'read':>10}")
    for name in CONTENDERS:
        row = [speeds.get(f"{name}_{what}") for what in ("write", "write_synced", "read")]
        cells = "".join(f"{'' if cell is None else f'{cell:.2f}':>10}" for cell in row)
        print(f"{name:22}{cells}")


if __name__ == "__main__":
    main()
