"""One cell in words and numbers."""

import numpy as np

from reprolab.comparison import compare
from reprolab.views.cell import cell
from reprolab.views.heat import EQUAL, LOWEST, NOT_FINITE, extent


def look(comparison, *place):
    return cell(comparison, *place, extent(comparison.rows))


def test_the_first_difference_says_so_and_names_its_blocks(parted):
    first = parted.first
    found = look(parted, first.step, first.stream, first.tensor, None)
    assert "first difference" in found["says"]
    blocks = parted.blocks(first.step, first.stream, first.tensor, first.rank)
    assert [code >= LOWEST for code in found["blocks"]] == blocks["differs"].to_list()
    assert [row[0] for row in found["rows"]] == [
        str(block) for block in blocks.filter("differs")["block"]
    ]


def test_distances_are_those_of_the_rows(parted):
    row = parted.rows.row(-1, named=True)
    found = look(parted, row["step"], row["stream"], row["tensor"], row["rank"])
    facts = dict(found["facts"])
    assert np.isclose(float(facts["relative"]), row["relative"], rtol=0.01)
    assert np.isclose(float(facts["distance"].split(" ± ")[0]), row["distance"], rtol=0.01)


def test_an_equal_cell_shows_its_values_once(parted):
    found = look(parted, 0, "params", "layers.0.weight", None)
    assert found["says"] == "Exactly equal."
    assert set(found["blocks"]) == {EQUAL}
    assert [name for name, _ in found["facts"]] == ["values"]
    assert found["rank"] == "all ranks"


def test_a_scalar_shows_both_values(parted):
    found = look(parted, 11, "params", "scale", 1)
    facts = dict(found["facts"])
    assert float(facts["in a"]) != float(facts["in b"])
    assert found["rank"] == "rank 1"


def test_ranks_that_differ_alike_are_counted(trained):
    comparison = compare(trained("baseline"), trained("again", part_at=3))
    row = comparison.rows.row(0, named=True)
    found = look(comparison, row["step"], row["stream"], row["tensor"], None)
    assert found["rank"] == "rank 0 (all 2 alike)"


def test_a_nan_is_counted(trained):
    comparison = compare(trained("baseline"), trained("broken", broken_at=5))
    found = look(comparison, 5, "grads", "layers.0.bias", None)
    assert "1 NaN" in dict(found["facts"])["in b"]
    assert NOT_FINITE in found["blocks"]


def test_what_was_not_recorded_says_so(parted):
    assert look(parted, 0, "params", "no such tensor", None)["says"] == "Not recorded."
