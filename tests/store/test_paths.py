import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import DamagedData, LabError
from reprolab.store import paths

names = st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9._/~%-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    "name", ["layers.0.attn.weight", "lm_head.weight", "0.weight.exp_avg", "param_groups.0.lr"]
)
def test_ordinary_names_stay(name):
    assert paths.component(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "<b>&amp;</b>",
        "zarr.json",
        "c",
        "CON",
        "nul.weight",
        "__init__",
        ".hidden",
        "ends.",
        "\udc80",
        "x" * 5000,
        "Ümlaut",
        "~",
    ],
)
def test_hostile_names_stay_in_their_folder(name, tmp_path):
    found = paths.component(name)
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,120}", found)
    assert not found.startswith((".", "__"))
    assert not found.endswith(".")
    assert found.lower() not in {"c", "zarr.json", "con", "nul"}
    (tmp_path / found).mkdir()
    assert [entry.name for entry in tmp_path.iterdir()] == [found]


@settings(deadline=None)
@given(names)
def test_every_name_becomes_one_safe_component(name):
    assert re.fullmatch(r"(?![.]|__)[A-Za-z0-9._~-]{1,120}(?<![.])", paths.component(name))


@settings(deadline=None)
@given(names, names)
def test_two_names_never_meet_even_where_case_is_ignored(one, other):
    assert (one == other) == (paths.component(one).lower() == paths.component(other).lower())


def test_names_that_differ_in_case_only_are_kept_apart():
    assert paths.component("Weight").lower() != paths.component("weight").lower()


@pytest.mark.parametrize("name", ["baseline", "lr=1e-3, dp4", "2024-01-01_a", "R.1", "c", "zarr"])
def test_a_run_may_be_named(name):
    assert paths.check_run_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../a", "a\\b", ".new-x", "a.", "a ", "a\n", "<b>", "nul", "x" * 129],
)
def test_a_run_may_not_be_named(name):
    with pytest.raises(LabError, match="a run's name"):
        paths.check_run_name(name)


@pytest.mark.parametrize("name", ["", "Params", "replicas", "a/b", "..", "c", "con"])
def test_a_stream_may_not_be_named(name):
    with pytest.raises(ValueError, match="a stream's name"):
        paths.check_stream_name(name)


@pytest.mark.parametrize("path", ["", ".", "/etc/passwd", "../a", "a/../../b", "a\0"])
def test_a_path_from_a_record_cannot_leave(path, tmp_path):
    with pytest.raises(DamagedData, match="stay within"):
        paths.inside(tmp_path, path)


def test_other_files_are_no_ranks_or_steps(tmp_path):
    for name in ["rank-00003.jsonl", "rank-1.jsonl", "rank-00002.jsonl.draft", "notes.txt"]:
        (tmp_path / name).touch()
    assert paths.ranks_in(tmp_path) == [3]
    paths.commits(tmp_path).mkdir()
    for name in ["000000000007.json", "7.json", ".000000000008.json.12.draft"]:
        (paths.commits(tmp_path) / name).touch()
    assert paths.committed_steps(tmp_path) == [7]
