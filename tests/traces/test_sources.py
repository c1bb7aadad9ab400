import gzip
import io
import tarfile

import pytest

from reprolab.errors import TraceError
from reprolab.traces import open_trace
from reprolab.traces.sources import Source, sources


def test_a_folder_gives_its_files_in_order(tmp_path):
    for name in ("b.json", "a.json", ".hidden"):
        (tmp_path / name).write_text(name)
    with sources(tmp_path) as found:
        assert [source.stem for source in found] == ["a.json", "b.json"]
        assert found[0].head() == b"a.json"


def test_an_archive_cannot_name_files_outside(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("../../rank3.json")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with sources(path) as found:
        assert [source.stem for source in found] == ["rank3.json"]
        assert found[0].head() == b"{}"
        assert found[0].rank() == 3
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker7_step_12.1694128201553.pt.trace.json", 7),
        ("run2/rank_12.json", 12),
        ("gpu-3.json", 3),
        ("nccl_trace_rank_5", 5),
        ("4_output.json", 4),
        ("host.1694128201553.json", None),
        ("trace.json", None),
    ],
)
def test_names_tell_ranks(name, rank):
    assert Source(name, io.BytesIO).rank() == rank


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        open_trace(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="no files here"):
        open_trace(tmp_path / "empty")


def test_unknown_files_are_refused_with_what_is_known(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(TraceError, match="known are PyTorch profiler traces"):
        open_trace(tmp_path / "a.txt")


def test_damaged_packing_is_an_error(tmp_path):
    packed = gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * 200_000 + b"]}")
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match="damaged or cut short"):
        open_trace(path)
    path = tmp_path / "a.tar"
    path.write_bytes(b"not a tar file at all" * 100)
    with pytest.raises(TraceError, match="archive is damaged"):
        open_trace(path)
