"""One set of tensors, written by the real library of each format."""

import os
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes  # noqa: F401
import numpy as np
import pytest

from reprolab.errors import ReprolabError
from reprolab.vocabulary import ITEMSIZE

os.environ.setdefault("OMP_NUM_THREADS", "1")
DATA = Path(__file__).with_name("data")


def bits(dtype, shape, seed=0):
    """Any bits at all, NaN payloads and subnormals among them; only bool must be 0 or 1."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape, dtype=np.int64)) * ITEMSIZE[dtype]
    raw = rng.integers(0, 2 if dtype == "bool" else 256, size, dtype=np.uint8)
    return raw.view(np.dtype(dtype)).reshape(shape)


def make_samples():
    found = {f"every.{dtype}": bits(dtype, (5, 3, 7), 1) for dtype in ITEMSIZE}
    found |= {
        "matrix.weight": bits("float32", (70, 33), 2),
        "matrix.bias": bits("bfloat16", (33,), 3),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(2.5, np.float64),
        "nothing": np.full((3, 5), np.nan, np.float32),
        "steps": np.array([7], np.int64),
    }
    return found


def to_torch(array):
    import torch

    kind = getattr(torch, array.dtype.name)
    if not array.size:
        return torch.empty(array.shape, dtype=kind)
    flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
    return flat.view(kind).reshape(array.shape)


def write_safetensors(samples, folder):
    from safetensors.torch import save_file

    path = folder / "model.safetensors"
    tensors = {name: to_torch(array) for name, array in samples.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def write_shards(samples, folder):
    import json

    from safetensors.torch import save_file

    halves = [dict(list(samples.items())[start::2]) for start in (0, 1)]
    where = {}
    for number, half in enumerate(halves, 1):
        name = f"model-{number:05}-of-00002.safetensors"
        save_file({key: to_torch(array) for key, array in half.items()}, folder / name)
        where |= dict.fromkeys(half, name)
    index = {"metadata": {"total_size": 1}, "weight_map": {name: where[name] for name in samples}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_torch(samples, folder):
    import torch

    path = folder / "model.pt"
    nested = {}
    for name, array in samples.items():
        *groups, last = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = to_torch(array)
    torch.save(nested, path)
    return path


def write_dcp(samples, folder):
    import torch.distributed.checkpoint as dcp

    state = {name: to_torch(array) for name, array in samples.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that one process is one process
        dcp.save(state, checkpoint_id=str(folder), no_dist=True)
    return folder


def write_tensorstore(driver):
    def write(samples, folder):
        import json

        import tensorstore

        root = {"zarr": (".zgroup", {"zarr_format": 2})}.get(
            driver, ("zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})
        )
        (folder / root[0]).write_text(json.dumps(root[1]))
        for name, array in samples.items():
            chunk = [max(1, min(4, extent)) for extent in array.shape]
            if driver == "zarr":
                metadata = {"chunks": chunk, "compressor": {"id": "zstd", "level": 1}}
            else:
                grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
                codecs = [{"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}]
                metadata = {"chunk_grid": grid, "codecs": codecs}
            spec = {
                "driver": driver,
                "kvstore": {"driver": "file", "path": str(folder / name)},
                "metadata": metadata,
                "create": True,
            }
            dtype = tensorstore.dtype(array.dtype)
            store = tensorstore.open(spec, dtype=dtype, shape=array.shape).result()
            if array.size:
                store[...] = array
        return folder

    return write


def write_npz(samples, folder):
    path = folder / "model.npz"
    np.savez(path, **samples)
    return path


def write_compressed_npz(samples, folder):
    path = folder / "model.npz"
    np.savez_compressed(path, **samples)
    return path


def write_reprolab(samples, folder):
    from reprolab.policy import Policy
    from reprolab.store import Alone, begin_run
    from reprolab.vocabulary import TensorSpec

    writer = begin_run(
        folder,
        "run",
        rendezvous=Alone(),
        config={},
        mesh={"dp": 1},
        policy=Policy(),
        environment={},
        code={},
        timeout=20.0,
    )
    tensors = [
        (TensorSpec(name, array.dtype.name, array.shape), array) for name, array in samples.items()
    ]
    writer.checkpoint(3, {"params": tensors}, state={"epoch": 2})
    writer.close()
    return next((folder / "run" / "checkpoints").iterdir())


WRITERS = {
    "safetensors": write_safetensors,
    "shards": write_shards,
    "torch": write_torch,
    "dcp": write_dcp,
    "zarr2": write_tensorstore("zarr"),
    "zarr3": write_tensorstore("zarr3"),
    "npz": write_npz,
    "compressed npz": write_compressed_npz,
    "reprolab": write_reprolab,
}
FORMATS = {"shards": "safetensors", "zarr2": "zarr", "zarr3": "zarr", "compressed npz": "npz"}
NAMELESS = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""Dtypes that NumPy writes without a name."""


@pytest.fixture(scope="session")
def samples():
    return make_samples()


@pytest.fixture(scope="session")
def written(tmp_path_factory, samples):
    """Path of the samples in a format, written once; and the samples that it can express."""
    paths = {}

    def path_of(kind):
        inside = samples
        if kind.endswith("npz"):
            inside = {name: a for name, a in samples.items() if a.dtype.name not in NAMELESS}
        if kind not in paths:
            paths[kind] = WRITERS[kind](inside, tmp_path_factory.mktemp(kind.replace(" ", "_")))
        return paths[kind], inside

    return path_of


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """Folder of one of the archives under data/."""
    folders = {}

    def folder_of(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
                archive.extractall(folders[name])
        return folders[name]

    return folder_of


@contextmanager
def reads_or_refuses(place):
    """Whatever a file holds: it is read, or it is refused by an error that says which file."""
    try:
        yield
    except ReprolabError as refusal:
        if str(place) not in str(refusal):
            raise AssertionError(f"{refusal} does not name {place}") from refusal


@pytest.fixture(scope="session")
def make():
    return SimpleNamespace(
        bits=bits,
        to_torch=to_torch,
        writers=WRITERS,
        formats=FORMATS,
        reads_or_refuses=reads_or_refuses,
    )
