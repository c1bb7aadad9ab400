import argparse
import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, RefusedPickle, UnsupportedFormat
from reprolab.formats import nesting, open_checkpoint
from reprolab.vocabulary import Region


def saved(tmp_path, value, **options):
    path = tmp_path / "file.pt"
    torch.save(value, path, **options)
    return path


def test_nested_values_get_dotted_names(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    with open_checkpoint(saved(tmp_path, value)) as found:
        assert found.layout.names[:3] == ("model.0.weight", "model.0.bias", "model.1.weight")
        assert "optimizer.state.0.exp_avg" in found.layout.names
        assert found.metadata["epoch"] == 3
        assert found.metadata["optimizer.param_groups.0.lr"] == 0.5
        assert found.metadata["optimizer.param_groups.0.betas.1"] == 0.999
        assert found.read("model.1.num_batches_tracked") == 1
        expected = optimizer.state_dict()["state"][0]["exp_avg"].numpy()
        assert (found.read("optimizer.state.0.exp_avg") == expected).all()


def test_a_lone_tensor_and_a_list(tmp_path):
    assert open_checkpoint(saved(tmp_path, torch.arange(3))).layout.names == ("tensor",)
    found = open_checkpoint(saved(tmp_path, [torch.arange(3), (torch.ones(2), 5)]))
    assert (found.layout.names, found.metadata) == (("0", "1.0"), {"1.1": 5})


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_protocol(tmp_path, protocol):
    value = collections.OrderedDict(w=torch.ones(2, 2), step=4)
    found = open_checkpoint(saved(tmp_path, value, pickle_protocol=protocol))
    assert (found.read("w") == 1).all()
    assert found.metadata == {"step": 4}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_views_of_any_strides(tmp_path_factory, data):
    base = torch.arange(4 * 5 * 6, dtype=torch.int32).reshape(4, 5, 6)
    view = base.permute(data.draw(st.permutations(range(3))))
    for dim in range(3):
        start = data.draw(st.integers(0, view.shape[dim]))
        view = view.narrow(dim, start, data.draw(st.integers(0, view.shape[dim] - start)))
    if data.draw(st.booleans()):
        view = view[..., ::2]
    shared = {"view": view, "base": base}
    with open_checkpoint(saved(tmp_path_factory.mktemp("views"), shared)) as found:
        assert (found.read("view") == view.numpy()).all()
        assert found.read("view").shape == tuple(view.shape)
        bounds = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in view.shape]
        region = Region(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))
        place = tuple(slice(a, b) for a, b in bounds)
        assert (found.read("view", region) == view.numpy()[place]).all()


def test_expanded_and_shared_storages(tmp_path):
    one = torch.tensor([2.0]).expand(7, 3)
    tied = torch.ones(3)
    found = open_checkpoint(saved(tmp_path, {"one": one, "a": tied, "b": tied}))
    assert (found.read("one") == 2).all()
    assert found.read("one").shape == (7, 3)
    assert (found.read("a") == found.read("b")).all()


def test_parameters_buffers_and_arrays(tmp_path):
    value = {
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "buffer": torch.nn.Buffer(torch.full((2,), 3.0)),
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">f8"),
        "number": np.float64(1.5),
        "namespace": argparse.Namespace(lr=1),
        "counts": collections.Counter("aab"),
        "default": collections.defaultdict(list, x=[1]),
        "bytes": b"abc",
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "set": {1, 2},
        "rng": torch.get_rng_state(),
    }
    found = open_checkpoint(saved(tmp_path, value))
    assert (found.read("parameter") == 1).all()
    assert (found.read("buffer") == 3).all()
    assert (found.read("array") == value["array"]).all()
    assert (found.read("fortran") == value["fortran"]).all()
    assert (found.read("big") == value["big"]).all()
    assert (found.read("rng") == value["rng"].numpy()).all()
    assert found.metadata["number"] == 1.5
    assert found.metadata["namespace"] == "<argparse.Namespace>"
    assert found.metadata["size.1"] == 3
    assert not found.unsupported


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_elements_are_listed_apart(tmp_path):
    value = {
        "sparse": torch.eye(3).to_sparse(),
        "complex": torch.ones(2, dtype=torch.complex64),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "meta": torch.empty(3, device="meta"),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        "negative": torch._neg_view(torch.ones(2)),
        "objects": np.array([None, 1], dtype=object),
        "w": torch.ones(1),
    }
    found = open_checkpoint(saved(tmp_path, value))
    assert found.layout.names == ("w",)
    assert set(found.unsupported) == set(value) - {"w"}
    assert "complex64" in found.unsupported["complex"] or "Complex" in found.unsupported["complex"]
    with pytest.raises(KeyError, match="sparse"):
        found.read("sparse")


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_real_payload_is_refused_and_does_not_run(tmp_path):
    marker = tmp_path / "it-ran"
    path = saved(tmp_path, {"w": torch.ones(2), "extra": [Payload(marker)]})
    with pytest.raises(RefusedPickle, match=r"posix\.system") as refusal:
        open_checkpoint(path)
    assert str(path) in str(refusal.value)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "the payload is no payload, so the test above proves nothing"


def test_older_layouts_are_refused_without_being_read(tmp_path):
    marker = tmp_path / "it-ran"
    path = saved(tmp_path, [Payload(marker)], _use_new_zipfile_serialization=False)
    with pytest.raises(UnsupportedFormat, match=r"before 1\.6.*weights_only=True"):
        open_checkpoint(path)
    path.write_bytes(pickle.dumps([Payload(marker)], 4))
    with pytest.raises(UnsupportedFormat, match="bare pickle"):
        open_checkpoint(path)
    assert not marker.exists()


def test_programs_are_refused(tmp_path):
    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}, 2))
        archive.writestr("net/code/__torch__.py", "def forward(self): ...")
    with pytest.raises(UnsupportedFormat, match="TorchScript"):
        open_checkpoint(path)


def test_objects_of_horovod_are_refused_by_name(tmp_path):
    path = saved(tmp_path, {})
    rewritten(path, "data.pkl", b"\x80\x02chorovod.torch.elastic\nTorchState\n.")
    with pytest.raises(UnsupportedFormat, match=r"Horovod.*state_dict"):
        open_checkpoint(path)


def rewritten(path, member, content):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (name,) = [name for name in members if name.endswith("/" + member)]
    members[name] = content
    if content is None:
        del members[name]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_missing_and_short_storages_are_named(tmp_path):
    path = saved(tmp_path, {"layer": {"w": torch.ones(4)}})
    rewritten(path, "data/0", b"\0" * 15)
    with pytest.raises(DamagedData, match=r"layer\.w.*4 elements, and 3 are stored"):
        open_checkpoint(path)
    rewritten(path, "data/0", None)
    with pytest.raises(DamagedData, match=r"layer\.w.*data/0.*missing"):
        open_checkpoint(path)


def test_big_endian_files_are_refused(tmp_path):
    path = saved(tmp_path, {"w": torch.ones(4)})
    rewritten(path, "byteorder", b"big")
    with pytest.raises(UnsupportedFormat, match="big-endian"):
        open_checkpoint(path)


def test_names_that_meet_when_joined_are_refused(tmp_path):
    path = saved(tmp_path, {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)})
    with pytest.raises(DamagedData, match=r"both called 'a\.b'"):
        open_checkpoint(path)


def test_lists_within_lists_cannot_spell_out_endless_names(tmp_path, monkeypatch):
    monkeypatch.setattr(nesting, "_MOST", 10_000)
    for value in ([1], []):
        for _ in range(30):
            value = [value, value]
        with pytest.raises(DamagedData, match="more than"):
            open_checkpoint(saved(tmp_path, value))
    value = []
    for _ in range(200):
        value = [value, 1]
    with pytest.raises(DamagedData, match="deep"):
        open_checkpoint(saved(tmp_path, value))


def test_long_lists_of_numbers_stay_one_thing(tmp_path, monkeypatch):
    monkeypatch.setattr(nesting, "_MOST", 10_000)
    found = open_checkpoint(saved(tmp_path, {"order": list(range(20_000)), "lr": 0.5}))
    assert found.metadata == {"order": "<20000 values>", "lr": 0.5}


def test_a_member_named_twice_is_refused(tmp_path):
    path = tmp_path / "twice.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({}, 2))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/data.pkl", pickle.dumps({}, 2))
    with pytest.raises(DamagedData, match="two members"):
        open_checkpoint(path)


def test_compressed_archives_are_read_too(tmp_path):
    path = saved(tmp_path, {"w": torch.arange(1000)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with open_checkpoint(path) as found:
        assert (found.read("w", Region((500,), (10,))) == np.arange(500, 510)).all()
        assert (found.read("w", Region((5,), (10,))) == np.arange(5, 15)).all()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_changed_file_reads_or_is_refused(make, tmp_path_factory, data):
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(6).reshape(2, 3), "lr": 0.1}, buffer)
    changed = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("changed") / "file.pt"
    path.write_bytes(changed)
    with make.reads_or_refuses("file.pt"), open_checkpoint(path) as found:
        for name in found.layout.names:
            found.read(name)
