import errno
import os

import pytest

from reprolab.store import durable
from reprolab.store.durable import Drafts, publish_file, replace_file, write_all, write_file


def left(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_published_once(tmp_path):
    publish_file(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        publish_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert left(tmp_path) == ["a"]


@pytest.mark.parametrize("reason", [errno.EPERM, errno.ENOTSUP])
def test_a_file_is_published_where_there_are_no_links(tmp_path, monkeypatch, reason):
    def refuse(*_):
        raise OSError(reason, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    publish_file(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        publish_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert left(tmp_path) == ["a"]


def test_a_name_that_is_not_durable_is_not_published(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(durable, "sync_folder", fail)
    with pytest.raises(OSError, match="broken disk"):
        publish_file(tmp_path / "a", b"one")
    assert left(tmp_path) == []


def test_a_file_is_replaced_in_one_go(tmp_path):
    replace_file(tmp_path / "a", b"one")
    replace_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert left(tmp_path) == ["a"]


def test_drafts_that_were_not_published_go(tmp_path):
    write_file(tmp_path / "a", b"old")
    with Drafts() as drafts:
        write_file(drafts.add(tmp_path / "a"), b"new")
        write_file(drafts.add(tmp_path / "b"), b"new")
        assert len(left(tmp_path)) == 3
    assert left(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole = os.writev
    monkeypatch.setattr(os, "writev", lambda handle, pieces: whole(handle, [pieces[0][:2]]))
    handle = os.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    write_all(handle, [b"", b"abc", b"", memoryview(b"defgh")])
    os.close(handle)
    assert (tmp_path / "a").read_bytes() == b"abcdefgh"
