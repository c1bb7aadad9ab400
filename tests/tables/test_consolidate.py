"""Ledgers become tables of a fixed schema, also while they are being written."""

import math

import polars as pl
import pytest

from reprolab.errors import DamagedData
from reprolab.store.records import seal
from reprolab.tables import SCHEMAS, table, tables, write_tables


def ledger(run):
    return run.path / "attempts" / "000" / "ledger" / "rank-00000.jsonl"


@pytest.mark.parametrize("close", [True, False])
def test_every_table_has_its_schema_and_its_facts(write, close):
    found = tables(write(close=close))
    assert list(found) == list(SCHEMAS)
    for name, frame in found.items():
        assert frame.schema == SCHEMAS[name]
    assert found["spans"].rows() == [(0, 0, step, "forward", 1.5 * step, 1.0) for step in range(3)]
    values = found["metrics"]["value"].to_list()
    assert (values[0], values[2]) == (2.5, 1.0)
    assert math.isnan(values[1])
    assert found["batches"].row(0) == (0, 0, 0, 0, '["a", 1]', '{"samples": 2}')
    assert found["resources"].filter(pl.col("step") == 1).rows() == [
        (0, 0, 1, "rss", 10.0),
        (0, 0, 1, "cuda.0.peak", 2.5),
    ]
    kinds = found["notes"]["kind"].to_list()
    assert kinds == ["note"] * 3 + ["end"] * close


def test_the_environment_is_flat_and_holds_the_code(write):
    found = dict(table(write(), "environment").select("key", "value").rows())
    assert found == {
        "versions.torch": '"2"',
        "threads": "1",
        "code.git.commit": '"abc"',
    }


def test_a_layout_is_listed_where_it_begins(write):
    found = table(write(), "layout").filter(pl.col("stream") == "params")
    assert found.select("step", "position", "tensor", "shape", "bytes", "blocks").rows() == [
        (0, 0, "w", [2, 3], 24, 1),
        (0, 1, "empty", [0], 0, 0),
        (2, 0, "w", [3, 3], 36, 1),
        (2, 1, "empty", [0], 0, 0),
    ]


def test_a_run_without_facts_has_empty_tables(write):
    found = tables(write(facts=False, close=False))
    assert all(found[name].is_empty() for name in ("spans", "metrics", "notes"))


def test_a_torn_last_line_is_left_out(write):
    run = write(close=False)
    whole = table(run, "notes").height
    ledger(run).write_bytes(ledger(run).read_bytes()[:-5])
    assert table(run, "notes").height == whole - 1


def test_a_damaged_line_is_an_error_that_names_it(write):
    run = write()
    text = ledger(run).read_bytes()
    ledger(run).write_bytes(text[:50] + b"#" + text[51:])
    with pytest.raises(DamagedData, match="line 1 of rank-00000"):
        table(run, "spans")


def test_a_fact_of_another_kind_of_value_is_refused_and_unknown_facts_pass(write):
    run = write(close=False)
    with ledger(run).open("ab") as file:
        file.write(seal({"kind": "weather", "step": 1, "sun": True}) + b"\n")
    assert table(run, "spans").height == 3
    with ledger(run).open("ab") as file:
        file.write(seal({"kind": "span", "step": 1, "name": "x", "start": {}}) + b"\n")
    with pytest.raises(DamagedData, match="spans"):
        table(run, "spans")


def test_parquet_holds_the_same_tables_and_replaces_earlier_ones(write):
    run = write()
    first = write_tables(run)
    paths = write_tables(run)
    assert first == paths
    assert sorted(path.name for path in (run.path / "tables").iterdir()) == sorted(
        f"{name}.parquet" for name in SCHEMAS
    )
    for name, path in zip(SCHEMAS, paths, strict=True):
        assert pl.read_parquet(path).equals(table(run, name))


def test_an_unknown_table_is_refused(write):
    with pytest.raises(ValueError, match="spans, metrics"):
        table(write(), "losses")
