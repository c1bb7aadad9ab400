"""Checkpoints behind URLs, and how much of them is fetched."""

import shutil

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from reprolab.errors import CheckpointNotFound, DamagedData, MissingLibrary, UnsupportedFormat
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.vocabulary import Region


class CountingFiles(MemoryFileSystem):
    """Memory that counts what is fetched from it."""

    protocol = "counting"
    store = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    fetched = 0

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def cat_file(self, path, start=None, end=None, **options):
        found = super().cat_file(path, start=start, end=end, **options)
        CountingFiles.fetched += len(found)
        return found


fsspec.register_implementation("counting", CountingFiles, clobber=True)


@pytest.fixture
def upload():
    """Puts a checkpoint behind a URL."""
    files = fsspec.filesystem("counting")

    def put(path, name):
        files.put(str(path), f"/lab/{name}", recursive=path.is_dir())
        CountingFiles.fetched = 0
        return f"counting://lab/{name}"

    yield put
    files.rm("/lab", recursive=True)


REMOTE = ("safetensors", "shards", "torch", "dcp", "zarr2", "zarr3", "npz", "compressed npz")


@pytest.mark.parametrize("kind", REMOTE)
def test_every_format_opens_behind_a_url(kind, written, upload):
    path, samples = written(kind)
    url = upload(path, path.name)
    with open_checkpoint(url) as found:
        assert set(found.layout.names) == set(samples)
        for name, array in samples.items():
            assert found.read(name).tobytes() == array.tobytes(), name
        region = found.read("matrix.weight", Region((10, 5), (20, 7)))
        assert (region == samples["matrix.weight"][10:30, 5:12]).all() or np.isnan(region).any()
    layout, remote = fingerprint_checkpoint(url, block_bytes=256)
    local_layout, local = fingerprint_checkpoint(path, block_bytes=256)
    assert layout == local_layout
    assert (remote.digest == local.digest).all()


def test_deepspeed_opens_behind_a_url(unpacked, upload):
    folder = unpacked("deepspeed") / "s3_three"
    with open_checkpoint(upload(folder, "ds")) as found, open_checkpoint(folder) as local:
        assert (found.read("l1.weight") == local.read("l1.weight")).all()


@pytest.mark.parametrize("kind", ["safetensors", "torch", "npz", "dcp"])
def test_only_what_a_region_needs_is_fetched(kind, make, upload, tmp_path):
    samples = {"w": make.bits("int32", (2000, 500)), "v": make.bits("int32", (2000, 500))}
    folder = tmp_path / "model"
    folder.mkdir()
    path = make.writers[kind](samples, folder)
    url = upload(path, path.name)
    with open_checkpoint(url) as found:
        headers = CountingFiles.fetched
        assert headers < 200_000
        assert (found.read("w", Region((700, 0), (20, 500))) == samples["w"][700:720]).all()
        assert CountingFiles.fetched - headers < 20 * 500 * 4 * 1.1 + 70_000 * (kind == "dcp")


def test_zarr_fetches_only_the_chunks_it_needs(make, upload, tmp_path):
    samples = {"w": make.bits("int32", (40, 40))}
    folder = tmp_path / "model"
    folder.mkdir()
    url = upload(make.writers["zarr3"](samples, folder), "model")
    with open_checkpoint(url) as found:
        headers = CountingFiles.fetched
        found.read("w", Region((0, 0), (4, 8)))
        assert 0 < CountingFiles.fetched - headers < 2 * 100


def test_orbax_databases_behind_a_url_are_refused_with_advice(unpacked, upload):
    url = upload(unpacked("orbax") / "ocdbt", "ocdbt")
    with pytest.raises(UnsupportedFormat, match="copy the folder"):
        open_checkpoint(url)
    url = upload(unpacked("orbax") / "zarr", "zarr")
    with open_checkpoint(url) as found:
        assert found.read("params.dense.kernel").shape == (7, 5)


def test_nothing_behind_a_url_and_unknown_protocols(monkeypatch):
    with pytest.raises(CheckpointNotFound, match="URL"):
        open_checkpoint("counting://lab/nothing")
    with pytest.raises(CheckpointNotFound, match="fsspec"):
        open_checkpoint("nosuchprotocol://x/y")
    with pytest.raises(MissingLibrary, match=r"reprolab\[formats\]"):
        open_checkpoint("s3://bucket/x.safetensors") if not _has("s3fs") else _raise()
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingLibrary, match="needs fsspec"):
        open_checkpoint("counting://lab/x")


def _has(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _raise():
    raise MissingLibrary('install "reprolab[formats]"')


def test_file_urls_are_paths(written):
    path, samples = written("safetensors")
    with open_checkpoint(f"file://{path}") as found:
        assert set(found.layout.names) == set(samples)


def test_a_server_that_ignores_ranges_is_noticed(written, upload, monkeypatch):
    url = upload(written("safetensors")[0], "model.safetensors")
    whole = MemoryFileSystem.cat_file
    monkeypatch.setattr(
        CountingFiles, "cat_file", lambda self, path, start=None, end=None: whole(self, path)
    )
    with pytest.raises(DamagedData, match="ignores ranges"):
        open_checkpoint(url)


def test_names_with_strange_characters(tmp_path, written):
    folder = tmp_path / "a folder:with 'strange' — name"
    shutil.copytree(written("dcp")[0], folder)
    with open_checkpoint(folder) as found:
        assert found.read("scalar") == 2.5


def test_more_files_than_a_process_keeps_open(tmp_path, make):
    import json

    from safetensors.torch import save_file

    where = {}
    for number in range(300):
        name = f"model-{number:05}.safetensors"
        save_file({f"w{number}": make.to_torch(np.array([number], np.int32))}, tmp_path / name)
        where[f"w{number}"] = name
    index = {"weight_map": where}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with open_checkpoint(tmp_path) as found:
        assert [int(found.read(f"w{n}")[0]) for n in range(300)] == list(range(300))
