import json
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from reprolab.errors import DamagedData, UnsupportedFormat
from reprolab.formats import open_checkpoint


def index(folder, where, name="model.safetensors.index.json"):
    (folder / name).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": where}))


def halves(folder):
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    save_file({"b": torch.ones(2)}, folder / names[0])
    save_file({"a": torch.full((2,), 2.0)}, folder / names[1])
    return names


def test_an_index_gives_the_order(tmp_path):
    first, second = halves(tmp_path)
    index(tmp_path, {"a": second, "b": first})
    with open_checkpoint(tmp_path) as found:
        assert found.layout.names == ("a", "b")
        assert found.metadata == {"total_size": 8}
        assert (found.read("a") == 2).all()


def test_shards_of_torch(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.ones(2)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    where = {n: f"pytorch_model-0000{i}-of-00002.bin" for i, n in enumerate("ab", 1)}
    index(tmp_path, where, "pytorch_model.bin.index.json")
    with open_checkpoint(tmp_path) as found:
        assert (found.format, found.layout.names) == ("torch", ("a", "b"))


def test_a_missing_shard_is_named(tmp_path):
    first, second = halves(tmp_path)
    index(tmp_path, {"a": second, "b": first})
    (tmp_path / second).unlink()
    with pytest.raises(DamagedData, match=second):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(DamagedData, match=second):
        open_checkpoint(tmp_path)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path):
    first, _ = halves(tmp_path)
    index(tmp_path, {"a": first, "b": first})
    with pytest.raises(DamagedData, match=f"tensor a.*{first}"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/../../x", "C:x", "..\\x", ""]
)
def test_an_index_cannot_point_out_of_its_folder(tmp_path, name):
    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    index(folder, {"a": name})
    with pytest.raises(DamagedData, match="out of its folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": 5}', "[" * 9999]
)
def test_an_index_that_makes_no_sense_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(DamagedData, match="makes no sense"):
        open_checkpoint(tmp_path)


def test_numbered_files_without_an_index_belong_together(tmp_path):
    halves(tmp_path)
    assert set(open_checkpoint(tmp_path).layout.names) == {"a", "b"}


def test_one_file_in_a_folder_is_the_checkpoint(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert open_checkpoint(tmp_path).layout.names == ("a",)


def test_files_that_do_not_belong_together_are_not_mixed(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "adapter.safetensors")
    with pytest.raises(UnsupportedFormat, match=r"one of them: adapter\.safetensors, model"):
        open_checkpoint(tmp_path)


def test_a_name_in_two_files_is_refused(tmp_path):
    for name in ("model-00001-of-00002", "model-00002-of-00002"):
        save_file({"a": torch.ones(1)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(DamagedData, match=r"tensor a.*two files"):
        open_checkpoint(tmp_path)


def test_two_indexes_are_refused(tmp_path):
    index(tmp_path, {})
    index(tmp_path, {}, "other.safetensors.index.json")
    with pytest.raises(UnsupportedFormat, match="several indexed"):
        open_checkpoint(tmp_path)
    assert open_checkpoint(tmp_path / "other.safetensors.index.json").layout.names == ()


def test_what_torch_writes_as_safetensors(tmp_path):
    state = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path), fqn_to_index_mapping={"w": 1, "b": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=writer, no_dist=True)
    with open_checkpoint(tmp_path) as found:
        assert (found.read("w") == state["w"].numpy()).all()
        assert found.read("b").dtype.name == "bfloat16"


def shard(folder, number, tensors, offsets):
    told = json.dumps({name: {"saved_offsets": at} for name, at in offsets.items()})
    save_file(
        tensors,
        folder / f"shard-0000{number}-model-00001-of-00001.safetensors",
        metadata={"DCP_SHARDING_INFO": told, "format": "pt"},
    )


def test_shards_that_say_where_they_belong_are_put_together(tmp_path):
    whole = torch.arange(30.0).reshape(5, 6)
    shard(tmp_path, 1, {"w": whole[:3].clone(), "b": torch.ones(2)}, {"w": [0, 0], "b": [0]})
    shard(tmp_path, 2, {"w": whole[3:].clone()}, {"w": [3, 0]})
    with open_checkpoint(tmp_path) as found:
        assert (found.read("w") == whole.numpy()).all()
        assert (found.read("b") == 1).all()
    (tmp_path / "shard-00001-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(DamagedData, match=r"tensor w.*incomplete"):
        open_checkpoint(tmp_path)


def test_shards_that_lie_about_where_they_belong_are_refused(tmp_path):
    shard(tmp_path, 1, {"w": torch.ones(2, 2)}, {"w": [0]})
    with pytest.raises(DamagedData, match="a shard of shape"):
        open_checkpoint(tmp_path)
