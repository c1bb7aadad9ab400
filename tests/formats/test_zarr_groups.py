import json
import shutil
import warnings
import zipfile

import numpy as np
import pytest
import zarr
import zarr.codecs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, UnsupportedFormat
from reprolab.formats import open_checkpoint
from reprolab.vocabulary import Region

COMPRESSORS_3 = {
    "none": [],
    "zstd": [zarr.codecs.ZstdCodec()],
    "gzip": [zarr.codecs.GzipCodec()],
    "blosc": [zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")],
    "crc32c": [zarr.codecs.Crc32cCodec()],
    "zstd and crc32c": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()],
    "crc32c and zstd": [zarr.codecs.Crc32cCodec(), zarr.codecs.ZstdCodec()],
}
COMPRESSORS_2 = {
    "none": None,
    "zstd": {"id": "zstd", "level": 3},
    "blosc": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0},
    "lz4": {"id": "lz4", "acceleration": 1},
    "zlib": {"id": "zlib", "level": 1},
    "gzip": {"id": "gzip", "level": 1},
    "bz2": {"id": "bz2", "level": 1},
    "lzma": {"id": "lzma", "preset": 1, "format": 1, "check": -1, "filters": None},
}


def compare(path, name, expected, rng):
    with open_checkpoint(path) as found:
        assert found.format == "zarr"
        mine = found.read(name)
        assert (mine.dtype, mine.shape) == (expected.dtype.newbyteorder("="), expected.shape)
        assert (mine == expected).all()
        for _ in range(10):
            low = [int(rng.integers(0, n + 1)) for n in expected.shape]
            high = [int(rng.integers(a, n + 1)) for a, n in zip(low, expected.shape, strict=True)]
            box = Region(tuple(low), tuple(b - a for a, b in zip(low, high, strict=True)))
            place = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
            assert (found.read(name, box) == expected[place]).all()


@pytest.mark.parametrize("codecs", COMPRESSORS_3)
@pytest.mark.parametrize("shards", [None, (4, 6), "index first"])
def test_version_3(tmp_path, codecs, shards):
    values = np.random.default_rng(0).integers(-9, 9, (11, 13)).astype(np.float32)
    options = {"chunks": (2, 3), "compressors": COMPRESSORS_3[codecs]}
    if shards == (4, 6):
        options["shards"] = shards
    if shards == "index first":
        inner = [zarr.codecs.BytesCodec(), *COMPRESSORS_3[codecs]]
        options = {
            "chunks": (4, 6),
            "compressors": None,
            "serializer": zarr.codecs.ShardingCodec(
                chunk_shape=(2, 3), codecs=inner, index_location="start"
            ),
        }
    group = zarr.create_group(tmp_path / "g", zarr_format=3)
    array = group.create_array(
        "layers/w", shape=values.shape, dtype=values.dtype, fill_value=7, **options
    )
    array[:6] = values[:6]
    expected = np.full_like(values, 7)
    expected[:6] = values[:6]
    compare(tmp_path / "g", "layers.w", expected, np.random.default_rng(1))


@pytest.mark.parametrize("order", [(2, 0, 1), (0, 1, 2), (1, 2, 0)])
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("compressors", [None, [zarr.codecs.ZstdCodec()]])
def test_transposed_and_big_endian_chunks(tmp_path, order, endian, compressors):
    values = np.random.default_rng(0).integers(0, 99, (5, 6, 7))
    array = zarr.create_array(
        tmp_path / "a",
        shape=values.shape,
        dtype=values.dtype,
        chunks=(2, 3, 4),
        filters=[zarr.codecs.TransposeCodec(order=order)],
        serializer=zarr.codecs.BytesCodec(endian=endian),
        compressors=compressors,
    )
    array[...] = values
    compare(tmp_path / "a", "tensor", values, np.random.default_rng(1))


@pytest.mark.parametrize("compressor", COMPRESSORS_2)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_version_2(tmp_path, compressor, order, separator):
    import numcodecs

    values = np.random.default_rng(0).integers(-9, 9, (11, 13)).astype(">f4")
    config = COMPRESSORS_2[compressor]
    group = zarr.create_group(tmp_path / "g", zarr_format=2)
    array = group.create_array(
        "w",
        shape=values.shape,
        dtype=values.dtype,
        chunks=(4, 5),
        order=order,
        fill_value=np.nan,
        compressors=config and numcodecs.get_codec(config),
        chunk_key_encoding={"name": "v2", "separator": separator},
    )
    array[:, :6] = values[:, :6]
    group.attrs["step"] = 5
    with open_checkpoint(tmp_path / "g") as found:
        assert found.metadata == {"step": 5}
        assert (found.read("w", Region((0, 0), (11, 5))) == values[:, :5]).all()
        assert np.isnan(found.read("w", Region((0, 10), (11, 3)))).all()


@pytest.mark.parametrize("version", [2, 3])
def test_a_lone_array_attributes_and_nesting(tmp_path, version):
    group = zarr.create_group(tmp_path / "g", zarr_format=version)
    group.attrs.update({"step": 3, "config": {"lr": 0.5}})
    inner = group.create_group("a").create_group("b")
    inner.attrs["note"] = "here"
    inner.create_array("w", data=np.arange(3))
    inner.create_array("scalar", data=np.array(4.5))
    inner.create_array("empty", data=np.zeros((0, 3)), chunks=(1, 3))
    with open_checkpoint(tmp_path / "g") as found:
        assert set(found.layout.names) == {"a.b.w", "a.b.scalar", "a.b.empty"}
        assert found.metadata == {"step": 3, "config.lr": 0.5, "a.b.note": "here"}
        assert (found.read("a.b.scalar"), found.read("a.b.empty").shape) == (4.5, (0, 3))
    assert open_checkpoint(tmp_path / "g" / "a" / "b" / "w").layout.names == ("tensor",)


@pytest.mark.parametrize("version", [2, 3])
def test_zip_archives(tmp_path, version):
    values = np.arange(40.0).reshape(8, 5)
    with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w") as store:
        group = zarr.create_group(store, zarr_format=version)
        group.create_array("w", data=values, chunks=(3, 2))
    compare(tmp_path / "x.zip", "w", values, np.random.default_rng(0))


def test_what_cannot_be_read_is_listed_apart(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.create_group(tmp_path / "g", zarr_format=2)
        group.create_array("words", data=np.array(["a", "bc"]))
        group.create_array("complex", data=np.ones(2, np.complex64))
        group.create_array("when", shape=(2,), dtype="datetime64[s]")
        import numcodecs

        group.create_array("delta", shape=(4,), dtype="i4", filters=[numcodecs.Delta("i4")])
        group.create_array("w", data=np.ones(2))
    found = open_checkpoint(tmp_path / "g")
    assert found.layout.names == ("w",)
    assert set(found.unsupported) == {"words", "complex", "when", "delta"}
    assert "filters" in found.unsupported["delta"]


def array(folder, **changes):
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "fill_value": 0,
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zarr.json").write_text(json.dumps(metadata))
    return folder


def grid(*chunk):
    return {"name": "regular", "configuration": {"chunk_shape": list(chunk)}}


ZSTD = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}]


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1 << 62]},
        {"shape": [1 << 40, 1 << 40], "chunk_grid": grid(4, 4)},
        {"shape": [-4]},
        {"shape": [4.0]},
        {"shape": "4444"},
        {"chunk_grid": grid(0)},
        {"chunk_grid": grid(4, 4)},
        {"chunk_grid": {"name": "regular"}},
        {"codecs": 5},
        {"fill_value": [1, 2]},
        {"fill_value": "nonsense"},
        {"data_type": None},
        {"codecs": [{"name": "transpose", "configuration": {"order": [1]}}, *ZSTD]},
    ],
)
def test_metadata_that_makes_no_sense_is_refused(tmp_path, changes):
    with pytest.raises(DamagedData, match="makes no sense"):
        open_checkpoint(array(tmp_path / "a", **changes))


def test_other_versions_and_broken_documents_are_refused(tmp_path):
    with pytest.raises(DamagedData, match="zarr_format 3; got 4"):
        open_checkpoint(array(tmp_path / "a", zarr_format=4))
    (tmp_path / "a" / "zarr.json").write_text("{")
    with pytest.raises(DamagedData, match="not JSON"):
        open_checkpoint(tmp_path / "a")
    (tmp_path / "a" / "zarr.json").write_text("[]")
    with pytest.raises(DamagedData, match="no JSON object"):
        open_checkpoint(tmp_path / "a")


def test_groups_without_end_are_refused(tmp_path):
    place = tmp_path / "g"
    for _ in range(120):
        place.mkdir()
        (place / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
        place = place / "g"
    with pytest.raises(DamagedData, match="deep"):
        open_checkpoint(tmp_path / "g")


def test_names_that_meet_when_joined_are_refused(tmp_path):
    group = zarr.create_group(tmp_path / "g")
    group.create_array("a.b", data=np.ones(1))
    group.create_group("a").create_array("b", data=np.ones(1))
    with pytest.raises(DamagedData, match=r"both called 'a\.b'"):
        open_checkpoint(tmp_path / "g")


def test_a_folder_that_is_none_of_these(tmp_path):
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "notes.txt").write_text("")
    with pytest.raises(UnsupportedFormat, match=r"y/, notes\.txt; supported are"):
        open_checkpoint(tmp_path / "x")


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_stores_read_or_are_refused(make, tmp_path_factory, data):
    root = tmp_path_factory.mktemp("store")
    group = zarr.create_group(root / "g", zarr_format=data.draw(st.sampled_from([2, 3])))
    group.create_array("w", data=np.arange(12.0).reshape(4, 3), chunks=(2, 2))
    files = sorted(path for path in (root / "g").rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    changed = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(changed)
    with make.reads_or_refuses(root), open_checkpoint(root / "g") as found:
        for spec in found.layout.tensors:
            if spec.nbytes < 1 << 24:
                found.read(spec.name)
    shutil.rmtree(root)


def test_a_zip_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UnsupportedFormat, match=r"readme\.txt"):
        open_checkpoint(tmp_path / "x.zip")
