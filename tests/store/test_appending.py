import errno
import os

import pytest

from reprolab.errors import RecordingFailed
from reprolab.store import appending
from reprolab.store.appending import AppendedFile


def test_pieces_reach_the_file_when_flushed(tmp_path):
    file = AppendedFile(tmp_path / "f")
    file.append(b"one", b"two")
    assert file.path.read_bytes() == b""
    file.flush()
    assert file.path.read_bytes() == b"onetwo"
    file.append(b"three")
    file.close()
    file.close()
    assert file.path.read_bytes() == b"onetwothree"
    with pytest.raises(RecordingFailed, match="closed"):
        file.append(b"four")


def test_many_bytes_do_not_gather_in_memory(tmp_path):
    file = AppendedFile(tmp_path / "f")
    for _ in range(9):
        file.append(bytes(1 << 20))
    assert file.path.stat().st_size >= 4 << 20


def test_an_existing_file_is_never_appended_to(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        AppendedFile(tmp_path / "f")


def test_a_refused_write_leaves_whole_pieces_and_can_be_tried_again(tmp_path, monkeypatch):
    file = AppendedFile(tmp_path / "f")
    file.append(b"first\n")
    file.flush()

    def half(handle, pieces):
        os.write(handle, b"".join(pieces)[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(appending, "write_all", half)
        file.append(b"second\n")
        with pytest.raises(RecordingFailed, match="No space left"):
            file.flush()
        assert file.path.read_bytes() == b"first\n"
    file.append(b"third\n")
    file.close()
    assert file.path.read_bytes() == b"first\nsecond\nthird\n"
