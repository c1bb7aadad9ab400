import math

import pytest

from reprolab.errors import DamagedData
from reprolab.store.ledger import LedgerWriter, read_facts


def write(path, count=5):
    ledger = LedgerWriter(path)
    for step in range(count):
        ledger.append("metric", step, {"name": "loss", "value": 1 / (step + 1)})
    ledger.close()


def steps(path):
    return [fact["step"] for fact in read_facts(path, 2, 1)]


def test_facts_come_back_with_rank_and_attempt(tmp_path):
    ledger = LedgerWriter(tmp_path / "l")
    ledger.append("metric", 3, {"name": "loss", "value": math.inf})
    ledger.append("note", None, {"text": "</script>\nnan"})
    ledger.close()
    assert list(read_facts(tmp_path / "l", 2, 1)) == [
        {"kind": "metric", "step": 3, "name": "loss", "value": math.inf, "rank": 2, "attempt": 1},
        {"kind": "note", "text": "</script>\nnan", "rank": 2, "attempt": 1},
    ]


def test_wherever_the_file_is_cut_whole_facts_are_read_and_the_torn_one_skipped(tmp_path):
    path = tmp_path / "l"
    write(path)
    whole = path.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        assert steps(path) == list(range(sum(length >= end for end in ends)))


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "l"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"metric", b"matric")
    path.write_bytes(b"".join(lines))
    facts = read_facts(path, 2, 1)
    assert [next(facts)["step"], next(facts)["step"]] == [0, 1]
    with pytest.raises(DamagedData, match=r"rank 2.*line 3 of l is damaged"):
        next(facts)


def test_a_flipped_bit_anywhere_but_in_the_last_line_break_is_found(tmp_path):
    path = tmp_path / "l"
    write(path, 2)
    whole = path.read_bytes()
    for place in range(8 * (len(whole) - 1)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedData):
            list(read_facts(path, 0, 0))


@pytest.mark.parametrize("name", ["kind", "step", "rank", "attempt", "crc"])
def test_a_field_cannot_take_the_name_of_another(tmp_path, name):
    ledger = LedgerWriter(tmp_path / "l")
    with pytest.raises(ValueError, match=name):
        ledger.append("note", None, {name: 1})


def test_a_refused_fact_leaves_no_trace(tmp_path):
    ledger = LedgerWriter(tmp_path / "l")
    ledger.append("note", 0, {"text": "a"})
    with pytest.raises(TypeError, match="value"):
        ledger.append("metric", 1, {"value": object()})
    ledger.append("note", 2, {"text": "b"})
    ledger.close()
    assert steps(tmp_path / "l") == [0, 2]
