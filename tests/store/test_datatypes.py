import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorstore
import zarr

from reprolab.store import datatypes
from reprolab.store.arrays import array_metadata, group_metadata, numpy_dtype
from reprolab.store.chunks import write_chunk
from reprolab.store.grid import Grid
from reprolab.vocabulary import ITEMSIZE

EXTENSIONS = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
SHAPES = [(), (1,), (0,), (5, 0), (37,), (37, 5), (3, 4, 11), (2, 1, 3, 5)]


@pytest.fixture(autouse=True)
def registered():
    datatypes.register()


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()


def open_tensorstore(folder, **more):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}, **more}
    return tensorstore.open(spec).result()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_arrays_are_byte_exact_for_zarr_python_and_tensorstore(tmp_path, make, dtype, shape):
    spec = make.spec("<w>", shape, dtype)
    values = make.values(spec)
    grid = Grid.fit(shape, ITEMSIZE[dtype], limit=64)
    metadata = array_metadata(dtype, shape, grid.chunk, {"name": spec.name})
    (tmp_path / "zarr.json").write_bytes(metadata)
    flat = values.reshape(-1)
    for number in range(grid.size):
        held = grid.elements(number)
        data = flat[held.start : held.stop].view(np.uint8)
        write_chunk(tmp_path / grid.key(number), data, grid.chunk_size * ITEMSIZE[dtype])

    array = zarr.open_array(tmp_path, mode="r")
    found = np.asarray(array[...])
    assert (found.dtype, found.shape, bits(found)) == (values.dtype, shape, bits(values))
    assert array.attrs["name"] == "<w>"

    other = open_tensorstore(tmp_path, open=True)
    found = other.read().result()
    assert (found.dtype, found.shape, bits(found)) == (values.dtype, shape, bits(values))
    assert other.spec().to_json()["metadata"]["data_type"] == dtype


@pytest.mark.parametrize("dtype", EXTENSIONS)
def test_what_zarr_python_writes_tensorstore_reads_and_the_other_way_round(tmp_path, make, dtype):
    values = make.values(make.spec(shape=(6, 5), dtype=dtype))
    array = zarr.create_array(
        tmp_path / "a", shape=(6, 5), chunks=(4, 5), dtype=values.dtype, compressors=None
    )
    array[...] = values
    assert bits(open_tensorstore(tmp_path / "a", open=True).read().result()) == bits(values)
    codecs = json.loads((tmp_path / "a" / "zarr.json").read_text())["codecs"]
    assert ("configuration" in codecs[0]) == (dtype == "bfloat16")

    store = open_tensorstore(
        tmp_path / "b", create=True, metadata={"shape": [6, 5], "data_type": dtype}
    )
    store.write(values).result()
    assert bits(zarr.open_array(tmp_path / "b", mode="r")[...]) == bits(values)


def test_bfloat16_in_the_other_byte_order_is_read_right(tmp_path, make):
    values = make.values(make.spec(shape=(16,), dtype="bfloat16"))
    store = open_tensorstore(
        tmp_path / "a",
        create=True,
        metadata={
            "shape": [16],
            "data_type": "bfloat16",
            "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
        },
    )
    store.write(values).result()
    found = zarr.open_array(tmp_path / "a", mode="r")[...]
    assert bits(found.astype(ml_dtypes.bfloat16)) == bits(values)


@pytest.mark.parametrize("dtype", EXTENSIONS)
@pytest.mark.parametrize("value", [0.0, 1.5, -2.0, np.nan])
def test_fill_values_come_back(tmp_path, dtype, value):
    native = numpy_dtype(dtype)
    zarr.create_array(
        tmp_path / "a", shape=(3,), dtype=native, fill_value=native.type(value), compressors=None
    )
    expected = np.full(3, value, native)
    assert bits(zarr.open_array(tmp_path / "a", mode="r")[...]) == bits(expected)
    assert bits(open_tensorstore(tmp_path / "a", open=True).read().result()) == bits(expected)


@pytest.mark.parametrize(
    ("dtype", "written", "expected"),
    [
        ("bfloat16", "0x7fc0", 0x7FC0),
        ("bfloat16", "0x7fc1", 0x7FC1),
        ("bfloat16", "NaN", 0x7FC0),
        ("bfloat16", "-Infinity", 0xFF80),
        ("float8_e5m2", "0x7d", 0x7D),
        ("float8_e5m2", "Infinity", 0x7C),
        ("float8_e4m3fn", "0x38", 0x38),
        ("float8_e4m3fn", 1.0, 0x38),
    ],
)
def test_fill_values_of_other_implementations_are_understood(dtype, written, expected):
    known = zarr.dtype.data_type_registry.get(dtype)()
    value = known.from_json_scalar(written, zarr_format=3)
    unsigned = np.asarray(value, known.to_native_dtype()).view(f"u{ITEMSIZE[dtype]}")
    assert int(unsigned) == expected
    again = known.from_json_scalar(known.to_json_scalar(value, zarr_format=3), zarr_format=3)
    assert bits(np.asarray(again)) == bits(np.asarray(value))


@pytest.mark.parametrize("written", ["0x1ffff", "zero", "0x", None, [0]])
def test_a_senseless_fill_value_is_refused(written):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        datatypes.BFloat16().from_json_scalar(written, zarr_format=3)


def test_other_dtypes_are_still_told_apart():
    for name in ("float16", "uint8", "bool", "float64"):
        assert zarr.dtype.parse_dtype(np.dtype(name), zarr_format=3)._zarr_v3_name == name
    for name in EXTENSIONS:
        assert zarr.dtype.parse_dtype(numpy_dtype(name), zarr_format=3)._zarr_v3_name == name
    with pytest.raises(ValueError, match="No Zarr data type"):
        zarr.dtype.parse_dtype(np.dtype(ml_dtypes.float8_e4m3b11fnuz), zarr_format=3)


def test_a_program_that_never_names_reprolab_reads_them(tmp_path):
    """Through the entry points; zarr-python 3.1 gathers them and leaves the loading to others."""
    for name in EXTENSIONS:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "zarr.json").write_bytes(array_metadata(name, (2,), (2,), {}))
    (tmp_path / "zarr.json").write_bytes(group_metadata({}))
    script = (
        "import sys, zarr; zarr.dtype.data_type_registry._lazy_load()\n"
        "group = zarr.open_group(sys.argv[1], mode='r')\n"
        "print(sorted(str(array.dtype) for _, array in group.arrays()), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{EXTENSIONS} False"
