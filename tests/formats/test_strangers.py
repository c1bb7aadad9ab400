import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

from reprolab.errors import UnsupportedFormat
from reprolab.formats import open_checkpoint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"hello, this is text", r"68 65 6c 6c 6f.*supported are.*safetensors"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), r"HDF5.*numpy\.savez"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (gzip.compress(b"x"), "gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd"),
        (bytes(100) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", r"TensorFlow.*load_checkpoint"),
    ],
)
def test_files_are_named_and_advised_on(tmp_path, content, said):
    path = tmp_path / "thing.safe"
    path.write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=said):
        open_checkpoint(path)


def test_arrays_and_tars(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2))
    with pytest.raises(UnsupportedFormat, match=r"single NumPy array.*savez"):
        open_checkpoint(tmp_path / "x.npy")
    with tarfile.open(tmp_path / "x.pth.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(UnsupportedFormat, match=r"tar archive.*weights_only=True"):
        open_checkpoint(tmp_path / "x.pth.tar")


def test_keras_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", "")
    with pytest.raises(UnsupportedFormat, match="Keras"):
        open_checkpoint(tmp_path / "x.keras")


@pytest.mark.parametrize(
    "names", [["checkpoint", "ckpt-1.index", "ckpt-1.data-00000-of-00001"], ["saved_model.pb"]]
)
def test_tensorflow_folders(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UnsupportedFormat, match=r"TensorFlow.*load_checkpoint.*savez"):
        open_checkpoint(tmp_path)


def test_horovod_stores(tmp_path):
    (tmp_path / "runs" / "run_1").mkdir(parents=True)
    (tmp_path / "intermediate_train_data").mkdir()
    with pytest.raises(UnsupportedFormat, match=r"Horovod store.*by its own path"):
        open_checkpoint(tmp_path)


def test_an_empty_folder(tmp_path):
    with pytest.raises(UnsupportedFormat, match="holding nothing; supported are"):
        open_checkpoint(tmp_path)
