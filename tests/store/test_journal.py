import struct

import google_crc32c
import numpy as np
import pytest

from reprolab.errors import DamagedData, FormatTooNew
from reprolab.store.journal import JournalReader, JournalWriter
from reprolab.store.layouts import stream_digest


@pytest.fixture
def written(tmp_path, make):
    """A journal of two streams over four steps, and what was put in."""
    writer = JournalWriter(tmp_path / "j")
    small, large = make.layout(), make.layout(make.spec(shape=(100,)), block_bytes=128)
    put = []
    for step in range(4):
        for stream, layout in (("params", large), ("loss", small)):
            fingerprint = make.fingerprint(layout.rows, seed=len(put))
            writer.append(step, stream, layout, fingerprint)
            put.append((step, stream, layout, fingerprint))
    writer.close()
    return tmp_path / "j", put


def equal(one, other):
    pairs = ((one.digest, other.digest), (one.moments, other.moments), (one.sketch, other.sketch))
    return all(np.array_equal(a.view(np.uint64), b.view(np.uint64)) for a, b in pairs)


def read_all(path):
    reader = JournalReader(path)
    return [reader.read(entry) for entry in reader.entries]


def test_fingerprints_come_back_bit_for_bit(written):
    path, put = written
    reader = JournalReader(path)
    assert [(e.step, e.stream, e.layout) for e in reader.entries] == [p[:3] for p in put]
    for entry, (_, _, _, fingerprint) in zip(reader.entries, put, strict=True):
        assert equal(reader.read(entry), fingerprint)
        assert entry.digest == stream_digest(entry.layout, fingerprint.digest)


def test_reused_memory_does_not_change_what_was_recorded(tmp_path, make):
    writer = JournalWriter(tmp_path / "j")
    fingerprint = make.fingerprint(1)
    kept = make.fingerprint(1)
    writer.append(0, "params", make.layout(), fingerprint)
    fingerprint.digest[:] = 0
    fingerprint.sketch[:] = 0
    writer.close()
    reader = JournalReader(tmp_path / "j")
    assert equal(reader.read(reader.entries[0]), kept)


def test_wherever_the_file_is_cut_whole_records_are_read(written):
    path, put = written
    whole = path.read_bytes()
    ends = [entry.offset + 192 * entry.layout.rows for entry in JournalReader(path).entries]
    for length in [*range(0, len(whole), 7), *ends, *(end - 1 for end in ends), len(whole)]:
        path.write_bytes(whole[:length])
        reader = JournalReader(path)
        assert len(reader.entries) == sum(end <= length for end in ends)
        for entry, (_, _, _, fingerprint) in zip(reader.entries, put, strict=False):
            assert equal(reader.read(entry), fingerprint)


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path, make):
    path = tmp_path / "j"
    writer = JournalWriter(path)
    writer.append(0, "params", make.layout(), make.fingerprint(1))
    writer.append(1, "params", make.layout(), make.fingerprint(1))
    writer.close()
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 5):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedData, match=r"path .*j\]"):
            read_all(path)


def test_a_newer_journal_is_told_from_damage(written):
    path, _ = written
    whole = path.read_bytes()
    name = struct.pack("<6sH", b"RLJRNL", 2)
    path.write_bytes(name + struct.pack("<I", google_crc32c.value(name)) + whole[12:])
    with pytest.raises(FormatTooNew):
        JournalReader(path)


def head(kind, length, layout=0, rows=1):
    text = struct.pack("<4sHHQqIIQI", b"rec\n", kind, 0, length, 0, layout, rows, 0, 0)
    return text + struct.pack("<I", google_crc32c.value(text))


@pytest.mark.parametrize(
    "record",
    [
        head(3, 0),
        head(2, 192, layout=7) + bytes(192),
        head(1, 2) + b"{}",
        head(1, 16) + b'{"stream":"../"}',
    ],
)
def test_records_that_check_and_make_no_sense_are_damage(tmp_path, record):
    path = tmp_path / "j"
    JournalWriter(path).close()
    payload = record[48:]
    checked = record[:40] + struct.pack("<I", google_crc32c.value(payload))
    path.write_bytes(
        path.read_bytes() + checked + struct.pack("<I", google_crc32c.value(checked)) + payload
    )
    with pytest.raises(DamagedData, match="byte 12"):
        JournalReader(path)


def test_a_length_beyond_the_file_takes_no_memory(tmp_path):
    path = tmp_path / "j"
    JournalWriter(path).close()
    path.write_bytes(path.read_bytes() + head(1, 1 << 60) + b"{")
    assert JournalReader(path).entries == []


def test_a_reader_sees_what_was_flushed_while_the_writer_goes_on(tmp_path, make):
    writer = JournalWriter(tmp_path / "j")
    layout = make.layout()
    for step in range(3):
        writer.append(step, "params", layout, make.fingerprint(1, seed=step))
        assert len(JournalReader(tmp_path / "j").entries) == step
        writer.flush()
        reader = JournalReader(tmp_path / "j")
        assert len(reader.entries) == step + 1
    (tmp_path / "j").unlink()
    assert equal(reader.read(reader.entries[2]), make.fingerprint(1, seed=2))


def test_a_layout_is_recorded_once(tmp_path, make):
    writer = JournalWriter(tmp_path / "j")
    for step in range(6):
        layout = make.layout(make.spec(name="x" * 1000, shape=(step % 2 + 1,)))
        writer.append(step, "batch", layout, make.fingerprint(1))
    writer.close()
    assert (tmp_path / "j").read_bytes().count(b"x" * 1000) == 2
    shapes = [entry.layout.tensors[0].shape for entry in JournalReader(tmp_path / "j").entries]
    assert shapes == [(1,), (2,)] * 3


@pytest.mark.parametrize(("rows", "step"), [(2, 5), (1, 4), (1, 3)])
def test_wrong_rows_and_steps_are_refused(tmp_path, make, rows, step):
    writer = JournalWriter(tmp_path / "j")
    writer.append(4, "params", make.layout(), make.fingerprint(1))
    with pytest.raises(ValueError, match="params"):
        writer.append(step, "params", make.layout(), make.fingerprint(rows))
    writer.close()
    assert len(JournalReader(tmp_path / "j").entries) == 1
