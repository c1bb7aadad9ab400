import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, RefusedPickle
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.kernels import fingerprint
from reprolab.vocabulary import Region


def save(state, folder, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=str(folder), no_dist=True, **options)
    return folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A checkpoint of two real ranks with FSDP2 and other DTensors, and its gathered tensors."""
    root = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, str(Path(__file__).with_name("dcp_ranks.py"))]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "2", str(root / "meeting"), str(root / "step")],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            _, complaint = rank.communicate(timeout=120)
            assert rank.returncode == 0, complaint
    finally:
        for rank in ranks:
            rank.kill()
    return root / "step", torch.load(root / "reference.pt")


def as_numpy(tensor):
    array = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    name = str(tensor.dtype).removeprefix("torch.")
    return array.view(np.dtype(name)).reshape(tuple(tensor.shape))


@pytest.mark.processes
def test_shards_of_two_ranks_are_put_together(sharded):
    folder, reference = sharded
    with open_checkpoint(folder) as found:
        assert set(found.layout.names) == set(reference)
        assert len(list(folder.glob("*.distcp"))) == 2
        for name, tensor in reference.items():
            expected = as_numpy(tensor)
            assert found.read(name).dtype == expected.dtype, name
            assert found.read(name).shape == expected.shape, name
            assert found.read(name).tobytes() == expected.tobytes(), name
        assert found.metadata["epoch"] == 3
        assert found.metadata["names.1.b"] == 2
        assert 0.25 in found.metadata.values()


@pytest.mark.processes
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_regions_across_shards(sharded, data):
    folder, reference = sharded
    name = data.draw(st.sampled_from(["rows", "columns", "depth", "same", "model.0.weight"]))
    expected = as_numpy(reference[name])
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in expected.shape]
    with open_checkpoint(folder) as found:
        box = found.read(name, Region(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds)))
    place = tuple(slice(a, b) for a, b in bounds)
    assert box.tobytes() == np.ascontiguousarray(expected[place]).tobytes()


@pytest.mark.processes
def test_fingerprints_of_shards_are_those_of_the_whole(sharded):
    folder, reference = sharded
    layout, found = fingerprint_checkpoint(folder, block_bytes=64)
    for index, name in enumerate(layout.names):
        expected = fingerprint(as_numpy(reference[name]), block_bytes=64)
        assert (found.digest[layout.rows_of(index)] == expected.digest).all(), name


@pytest.mark.processes
def test_what_one_rank_saved_with_torch_is_only_its_part(sharded):
    folder, reference = sharded
    found = open_checkpoint(folder.with_name("rank-1.pt"))
    assert (found.read("same") == reference["same"].numpy()).all()
    assert found.read("scalar") == 4.5
    assert "torch.distributed.checkpoint" in found.unsupported["rows"]


@pytest.mark.processes
def test_a_missing_file_of_a_rank_is_named_on_opening(sharded, tmp_path):
    copy = shutil.copytree(sharded[0], tmp_path / "copy")
    (copy / "__1_0.distcp").unlink()
    with pytest.raises(DamagedData, match=r"__1_0\.distcp.*missing"):
        open_checkpoint(copy)


@pytest.mark.parametrize("threads", [1, 3])
def test_several_files_a_rank(tmp_path, threads):
    state = {f"w{n}": torch.arange(n, dtype=torch.float32) for n in range(1, 6)}
    writer = dcp.FileSystemWriter(
        str(tmp_path / "s"), single_file_per_rank=False, thread_count=threads
    )
    save(state, tmp_path / "s", storage_writer=writer)
    found = open_checkpoint(tmp_path / "s")
    assert all((found.read(name) == tensor.numpy()).all() for name, tensor in state.items())


def test_files_of_items_that_are_safetensors(tmp_path):
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    state = {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5, dtype=torch.bfloat16)}
    writer = dcp.FileSystemWriter(
        str(tmp_path / "s"), serialization_format=SerializationFormat.SAFETENSORS
    )
    save(state, tmp_path / "s", storage_writer=writer)
    with open_checkpoint(tmp_path / "s") as found:
        assert found.format == "dcp"
        assert (found.read("w", Region((1, 0), (2, 3))) == state["w"].numpy()[1:, :3]).all()
        assert found.read("b").tobytes() == as_numpy(state["b"]).tobytes()


def test_tensors_stored_through_extensions_are_listed_apart(tmp_path):
    save({"w": torch.ones(3), "b": torch.ones(2)}, tmp_path / "s")

    def change(metadata):
        infos = {index.fqn: info for index, info in metadata.storage_data.items()}
        infos["w"].transform_descriptors = ["stream.zstd/1"]

    rewrite(tmp_path / "s", change)
    found = open_checkpoint(tmp_path / "s")
    assert found.layout.names == ("b",)
    assert "extension" in found.unsupported["w"]


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_real_payload_in_the_metadata_is_refused_and_does_not_run(tmp_path):
    save({"w": torch.ones(3)}, tmp_path / "s")
    marker = tmp_path / "it-ran"
    path = tmp_path / "s" / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    metadata.planner_data["w"] = Payload(marker)
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(RefusedPickle, match=r"posix\.system"):
        open_checkpoint(tmp_path / "s")
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists(), "the payload is no payload, so the test above proves nothing"


def test_objects_beside_tensors_are_named_and_never_rebuilt(tmp_path):
    marker = tmp_path / "it-ran"
    save({"w": torch.ones(3), "loader": Payload(marker)}, tmp_path / "s")
    marker.unlink(missing_ok=True)
    found = open_checkpoint(tmp_path / "s")
    assert found.layout.names == ("w",)
    assert "posix.system" in found.metadata["loader"]
    assert not marker.exists()


def rewrite(folder, change):
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def first_info(metadata):
    return next(iter(metadata.storage_data.values()))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: setattr(first_info(m), "relative_path", "../s/__0_0.distcp"), "out of its"),
        (lambda m: setattr(first_info(m), "relative_path", "/etc/passwd"), "out of its folder"),
        (lambda m: setattr(first_info(m), "offset", 1 << 40), "truncated or its header lies"),
        (lambda m: setattr(first_info(m), "length", 1 << 60), "truncated or its header lies"),
        (lambda m: setattr(first_info(m), "offset", -5), "truncated or its header lies"),
        (lambda m: m.storage_data.clear(), "nowhere"),
        (lambda m: m.state_dict_metadata["w"].chunks.clear(), "incomplete"),
        (lambda m: m.state_dict_metadata["w"].chunks.append(
            m.state_dict_metadata["w"].chunks[0]), "incomplete"),
        (lambda m: setattr(
            m.state_dict_metadata["w"], "size", torch.Size([3, 1 << 40])), "incomplete"),
        (lambda m: setattr(m.state_dict_metadata["w"], "size", "x"), "makes no sense"),
        (lambda m: setattr(m, "state_dict_metadata", None), "makes no sense"),
    ],
)  # fmt: skip
def test_metadata_that_lies_is_refused(tmp_path, change, complaint):
    save({"w": torch.ones(3, 4)}, tmp_path / "s")
    rewrite(tmp_path / "s", change)
    with pytest.raises(DamagedData, match=complaint):
        open_checkpoint(tmp_path / "s").read("w")


def test_overlapping_boxes_are_refused(tmp_path):
    save({"w": torch.ones(2, 4)}, tmp_path / "s")

    def change(metadata):
        chunks = metadata.state_dict_metadata["w"].chunks
        metadata.state_dict_metadata["w"].size = torch.Size([4, 4])
        chunks.append(chunks[0])

    rewrite(tmp_path / "s", change)
    with pytest.raises(DamagedData, match="same elements"):
        open_checkpoint(tmp_path / "s")


def test_an_item_of_another_shape_is_refused(tmp_path):
    save({"w": torch.ones(3, 4)}, tmp_path / "s")

    def change(metadata):
        entry = metadata.state_dict_metadata["w"]
        entry.size = entry.chunks[0].sizes = torch.Size([4, 3])

    rewrite(tmp_path / "s", change)
    with pytest.raises(DamagedData, match="the item is"), open_checkpoint(tmp_path / "s") as found:
        found.read("w")


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_changed_metadata_reads_or_is_refused(make, written, tmp_path_factory, data):
    source, _ = written("dcp")
    folder = tmp_path_factory.mktemp("changed")
    for path in source.iterdir():
        (folder / path.name).hardlink_to(path)
    changed = bytearray((source / ".metadata").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    (folder / ".metadata").unlink()
    (folder / ".metadata").write_bytes(changed)
    with make.reads_or_refuses(folder), open_checkpoint(folder) as found:
        for name in found.layout.names:
            if np.prod([float(n) for n in found.read(name).shape]) < 1e6:
                found.read(name)
