import google_crc32c
import numpy as np
import pytest

from reprolab.errors import DamagedData
from reprolab.store.chunks import WriteRequest, read_chunk, read_chunks, write_chunk, write_requests

DATA = np.random.default_rng(0).integers(0, 256, 100, np.uint8)


def test_a_chunk_is_its_bytes_padding_and_checksum(tmp_path):
    write_chunk(tmp_path / "c", DATA[:90], 100)
    content = DATA[:90].tobytes() + bytes(10)
    checksum = google_crc32c.value(content).to_bytes(4, "little")
    assert (tmp_path / "c").read_bytes() == content + checksum


@pytest.mark.parametrize("length", [0, 1, 99, 100])
def test_what_was_written_is_read_whole_or_in_part(tmp_path, length):
    write_chunk(tmp_path / "c", DATA[:length], 100)
    assert read_chunk(tmp_path / "c", 100)[:length].tobytes() == DATA[:length].tobytes()
    out = np.empty(length, np.uint8)
    assert read_chunk(tmp_path / "c", 100, out) is out
    assert out.tobytes() == DATA[:length].tobytes()


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "c"
    write_chunk(path, DATA[:15], 16)
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedData, match="checksum"):
            read_chunk(path, 16)


def test_a_missing_or_cut_chunk_is_named(tmp_path):
    path = tmp_path / "c.3.0"
    with pytest.raises(DamagedData, match=r"c\.3\.0.*missing"):
        read_chunk(path, 100)
    write_chunk(path, DATA, 100)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedData, match=r"c\.3\.0.*must be 104 bytes; it is 103"):
        read_chunk(path, 100)


def test_no_memory_is_taken_for_a_size_that_is_not_there(tmp_path):
    (tmp_path / "c").write_bytes(bytes(104))
    with pytest.raises(DamagedData, match="must be"):
        read_chunk(tmp_path / "c", 1 << 60)


def test_many_files_are_written_and_read_together(tmp_path):
    paths = [tmp_path / f"c.{number}" for number in range(20)]
    parts = [DATA[number : number + 50] for number in range(20)]
    write_requests([WriteRequest(path, part, 50) for path, part in zip(paths, parts, strict=True)])
    write_requests([WriteRequest(tmp_path / "zarr.json", b"{}")])
    out = np.empty((20, 50), np.uint8)
    read_chunks(paths, 50, list(out))
    assert np.array_equal(out, parts)
    assert (tmp_path / "zarr.json").read_bytes() == b"{}"
    paths[7].unlink()
    with pytest.raises(DamagedData, match=r"c\.7"):
        read_chunks(paths, 50, list(out))
