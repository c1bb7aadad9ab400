import zipfile

import numpy as np
import pytest

from reprolab.errors import DamagedData
from reprolab.formats import open_checkpoint
from reprolab.vocabulary import Region


def test_arrays_numpy_can_name_and_those_it_cannot(tmp_path):
    import ml_dtypes

    path = tmp_path / "x.npz"
    np.savez(
        path,
        w=np.arange(3.0),
        objects=np.array([None], dtype=object),
        brain=np.ones(2, ml_dtypes.bfloat16),
        record=np.zeros(2, [("a", "i4")]),
        big=np.arange(3, dtype=">i4"),
        words=np.array(["ab"]),
    )
    found = open_checkpoint(path)
    assert found.layout.names == ("w",)
    assert set(found.unsupported) == {"objects", "brain", "record", "big", "words"}
    assert "big-endian" in found.unsupported["big"]


def test_fortran_order(tmp_path):
    array = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    np.savez(tmp_path / "x.npz", a=array)
    found = open_checkpoint(tmp_path / "x.npz")
    assert (found.read("a") == array).all()
    assert (found.read("a", Region((1, 0, 2), (1, 3, 2))) == array[1:2, :, 2:4]).all()
    assert (found.elements("a", 5, 20) == array.reshape(-1)[5:20]).all()


def test_folders_in_names_become_dots(tmp_path):
    np.savez(tmp_path / "x.npz", **{"layer/0/w": np.ones(1)})
    assert open_checkpoint(tmp_path / "x.npz").layout.names == ("layer.0.w",)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': 'abc'}",
        "{'descr': '<f8', 'shape': (3,)}",
        "{'descr': __import__('os').system('false')}",
        "[" * 5000,
        "",
    ],
)
def test_headers_that_lie_are_refused(tmp_path, header):
    text = header.encode()
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("w.npy", member)
    with pytest.raises(DamagedData, match="w"):
        open_checkpoint(tmp_path / "x.npz")


def test_a_header_of_gigabytes_is_refused(tmp_path):
    member = b"\x93NUMPY\x02\x00" + (1 << 31).to_bytes(4, "little") + bytes(24)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("w.npy", member)
    with pytest.raises(DamagedData, match="2147483648 bytes long"):
        open_checkpoint(tmp_path / "x.npz")


def test_a_compressed_bomb_is_refused_by_what_is_asked_for(tmp_path):
    # The directory claims a small member; what would come out is larger than that.
    path = tmp_path / "x.npz"
    np.savez_compressed(path, w=np.zeros(1 << 20))
    data = bytearray(path.read_bytes())
    true = (8 << 20) + 128
    at = data.index(true.to_bytes(4, "little"), data.index(b"PK\x01\x02"))
    data[at : at + 4] = (1128).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DamagedData):
        open_checkpoint(path).read("w")
