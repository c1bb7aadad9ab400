import pytest
import torch
from torch import nn

import reprolab as rl
from reprolab.capture.census import Census
from reprolab.errors import UnsupportedTraining


def block():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_names_and_order_are_those_of_the_raw_model():
    model = nn.ModuleDict({"module": block(), "b": block()})
    model["tied"] = nn.Linear(2, 3)
    model["tied"].weight = model["b"][0].weight
    census = Census.of(model)
    assert census.names == tuple(name for name, _ in model.named_parameters())
    assert all(a is b for a, b in zip(census.parameters, model.parameters(), strict=True))
    assert census.buffer_names == tuple(name for name, _ in model.named_buffers())


def test_wrappers_leave_no_trace_in_names(single_group):
    plain = block()
    names = tuple(name for name, _ in plain.named_parameters())
    wrapped = nn.parallel.DistributedDataParallel(plain)
    assert Census.of(wrapped).names == names
    assert set(Census.of(wrapped).replicas) == {wrapped}
    compiled = torch.compile(wrapped, backend="eager")
    assert Census.of(compiled).names == names
    assert Census.of(nn.ModuleDict({"g": compiled})).names == tuple(f"g.{name}" for name in names)


@pytest.fixture
def single_group(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_changes_are_noticed():
    model = block()
    census = Census.of(model)
    assert census.current()
    model[1].running_mean = torch.ones(3)
    assert census.current()
    assert census.buffers[0] is model[1].running_mean
    model[0].weight = nn.Parameter(torch.zeros(3, 2))
    assert not census.current()
    census = Census.of(model)
    model.append(nn.ReLU())
    assert not census.current()


def test_shards_are_refused(single_group, tmp_path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = block()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(UnsupportedTraining, match="a DTensor") as caught:
        rl.record(tmp_path / "lab", run="run", model=model).__enter__()
    assert caught.value.where == {"tensor": "0.weight", "run": "run"}
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: nn.LazyLinear(3), "run one forward pass"),
        (lambda: nn.Linear(2, 2, device="meta"), "dense tensor with data"),
        (lambda: nn.Linear(2, 2).to_sparse_parameter(), "layout"),
    ],
)
def test_parameters_without_dense_data_are_refused(model, words):
    if words == "layout":
        built = nn.Module()
        built.w = nn.Parameter(torch.eye(2).to_sparse())
    else:
        built = model()
    with pytest.raises(UnsupportedTraining, match=words):
        Census.of(built)


def test_a_dtype_without_fingerprint_is_refused_before_anything_is_written(tmp_path):
    model = nn.Module()
    model.register_buffer("odd", torch.zeros(2, dtype=torch.float8_e4m3fnuz))
    with pytest.raises(UnsupportedTraining, match="dtype must be one of"):
        rl.record(tmp_path / "lab", run="run", model=model).__enter__()
    assert not (tmp_path / "lab").exists()


def test_complex_tensors_are_pairs_of_real_ones(tmp_path):
    model = nn.Module()
    model.w = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    model.register_buffer("turns", torch.ones(2, dtype=torch.complex64))
    policy = rl.Policy(checkpoint_every=1)
    with rl.record(tmp_path / "lab", run="run", model=model, policy=policy) as rec:
        rec.batch(torch.zeros(1))
        (model.w * 2).abs().sum().backward()
        rec.step()
    reader = rl.open_run(tmp_path / "lab" / "run").fingerprints(0)
    for stream, shape in (("params", (3, 2)), ("buffers", (2, 2)), ("grads", (3, 2))):
        (tensor,) = reader.layout(stream, 0).tensors
        assert (tensor.dtype, tensor.shape) == ("float32", shape)
    assert reader.tensor_moments("grads", 0)[0, 5] == 6.0


def test_mixed_precision_of_ddp_is_refused(single_group):
    from torch.nn.parallel.distributed import _MixedPrecision

    wrapped = nn.parallel.DistributedDataParallel(block())
    wrapped.mixed_precision = _MixedPrecision(torch.float16)
    with pytest.raises(UnsupportedTraining, match="two copies of each parameter"):
        Census.of(wrapped)
