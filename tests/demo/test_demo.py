"""Every fault of the demo, trained for real on four processes, is found where it was put."""

from dataclasses import replace

import pytest

from reprolab.comparison import compare
from reprolab.demo import FAULTS, train, train_pair
from reprolab.demo.settings import Settings
from reprolab.errors import ReprolabError
from reprolab.store import open_run

pytestmark = pytest.mark.processes

STEPS = 36


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    # Away from this repository, whose uncommitted changes would stand in the records.
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def first(lab):
    settings = Settings(lab=str(lab), run="first", steps=STEPS)
    return settings, train(settings, progress=False)


def second(first, name):
    """Train again with the fault; the run's name does not tell which."""
    settings, path = first
    changed = replace(settings, run=f"run-{list(FAULTS).index(name)}", **FAULTS[name][1])
    return compare(path, train(changed, progress=False))


def test_without_a_fault_the_runs_are_identical(first):
    found = second(first, "none")
    assert found.same
    assert found.first is None
    assert "identical" in found.verdict


@pytest.mark.parametrize(
    ("name", "step", "stream", "rank", "words"),
    [
        ("reduction-order", 1, "grads", 0, "reduction"),
        ("data-order", 20, "batch", 0, "batch"),
        ("dropout-seed", 0, "rng", 0, "generator"),
        ("learning-rate", 24, "optimizer", 0, "param_groups.0.lr"),
        ("bit-flip", 32, "params", 2, "bit 20"),
    ],
)
def test_a_fault_is_found_where_it_was_put(first, name, step, stream, rank, words):
    found = second(first, name)
    assert not found.same
    assert (found.first.step, found.first.stream, found.first.rank) == (step, stream, rank)
    assert words in found.verdict


def test_the_flipped_element_is_named(lab, first):
    found = compare(lab / "first", lab / f"run-{list(FAULTS).index('bit-flip')}")
    settings = first[0]
    assert found.first.tensor == settings.flip_tensor
    columns = settings.width
    row, column = divmod(settings.flip_element, columns)
    assert tuple(found.first.element.index) == (row, column)


def test_the_ranks_of_the_run_with_the_flipped_bit_disagree(lab, first):
    found = compare(lab / f"run-{list(FAULTS).index('bit-flip')}")
    assert (found.first.step, found.first.stream, found.first.rank) == (32, "params", 2)


def test_the_ranks_of_a_sound_run_agree(lab, first):
    assert compare(lab / "first").same


def test_no_record_names_the_fault(lab, first):
    for number, name in enumerate(FAULTS):
        path = lab / f"run-{number}"
        names = (
            name.encode(),
            b"bucket_cap",
            b"lr_factor",
            b"flip_",
            b"reshuffle",
            b"dropout_seed",
        )
        if name == "none":
            continue
        run = open_run(path)
        assert run.config == open_run(lab / "first").config
        for file in path.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert not [word for word in names if word in content], file


def test_a_training_that_fails_says_what_the_process_said(tmp_path):
    with pytest.raises(ReprolabError, match="windows"):
        train_pair(tmp_path, "none", world_size=1, progress=False, steps=2, windows="many")


def test_an_unknown_fault_is_refused(tmp_path):
    with pytest.raises(ValueError, match="reduction-order"):
        train_pair(tmp_path, "gremlins")
