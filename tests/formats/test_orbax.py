import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from reprolab.errors import DamagedData, MissingLibrary, UnsupportedFormat
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.kernels import fingerprint
from reprolab.vocabulary import Region

KINDS = ("ocdbt", "ocdbt_zarr3", "zarr", "zarr3", "manager/10")
"""One tree of every dtype, written by orbax-checkpoint 0.12.8."""


@pytest.fixture(scope="module")
def reference(unpacked):
    folder = unpacked("orbax")
    told = json.loads((folder / "reference.json").read_text())
    with np.load(folder / "reference.npz") as arrays:
        return {
            name: arrays[name].reshape(-1).view(np.uint8).view(np.dtype(dtype)).reshape(shape)
            for name, (dtype, shape) in told.items()
        }


@pytest.mark.parametrize("kind", KINDS)
def test_every_leaf_is_read_bit_for_bit(unpacked, reference, kind):
    with open_checkpoint(unpacked("orbax") / kind) as found:
        assert found.format == "orbax"
        assert set(found.layout.names) == set(reference)
        for name, array in reference.items():
            mine = found.read(name)
            assert (mine.dtype, mine.shape) == (array.dtype, array.shape), name
            assert mine.tobytes() == array.tobytes(), name
        box = found.read("params.dense.kernel", Region((2, 1), (4, 3)))
        assert (box == reference["params.dense.kernel"][2:6, 1:4]).all()


@pytest.mark.parametrize("kind", ["ocdbt", "zarr3"])
def test_fingerprints(unpacked, reference, kind):
    layout, found = fingerprint_checkpoint(unpacked("orbax") / kind, block_bytes=32)
    for index, name in enumerate(layout.names):
        expected = fingerprint(reference[name], block_bytes=32)
        assert (found.digest[layout.rows_of(index)] == expected.digest).all()


def test_a_manager_of_steps_says_which_to_open(unpacked):
    with pytest.raises(UnsupportedFormat, match=r"steps 10; open one of them, such as .*/10"):
        open_checkpoint(unpacked("orbax") / "manager")


def test_a_missing_array_is_named(unpacked, tmp_path):
    copy = shutil.copytree(unpacked("orbax") / "zarr", tmp_path / "copy")
    shutil.rmtree(copy / "params.dense.bias")
    with pytest.raises(DamagedData, match=r"params\.dense\.bias"):
        open_checkpoint(copy)


def test_a_missing_database_file_is_refused(unpacked, tmp_path):
    copy = shutil.copytree(unpacked("orbax") / "ocdbt", tmp_path / "copy")
    shutil.rmtree(copy / "d")
    with pytest.raises(DamagedData):
        open_checkpoint(copy)
    (copy / "manifest.ocdbt").write_bytes(b"\x0c\xdb\x3a\x2a nonsense")
    with pytest.raises(DamagedData, match="database"):
        open_checkpoint(copy)


def test_an_unfinished_checkpoint_is_refused(unpacked, tmp_path):
    copy = shutil.copytree(unpacked("orbax") / "zarr", tmp_path / "5.orbax-checkpoint-tmp-123")
    with pytest.raises(DamagedData, match="did not finish"):
        open_checkpoint(copy)


def test_without_tensorstore_the_extra_is_named(unpacked, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(MissingLibrary, match=r"reprolab\[formats\]"):
        open_checkpoint(unpacked("orbax") / "ocdbt")
    assert open_checkpoint(unpacked("orbax") / "zarr").layout.names


def test_a_forked_process_refuses_rather_than_hangs(unpacked):
    script = """
import os, sys
from reprolab.errors import UnsupportedFormat
from reprolab.formats import open_checkpoint
open_checkpoint(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        open_checkpoint(sys.argv[1])
    except UnsupportedFormat as refusal:
        os._exit(7 if "spawn" in str(refusal) else 8)
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(unpacked("orbax") / "ocdbt")], timeout=60
    )
    assert done.returncode == 7
