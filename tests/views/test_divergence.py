"""The widget, without a page."""

import pytest
import traitlets

from reprolab.comparison import compare
from reprolab.views import DivergenceView


def test_it_opens_at_the_first_difference(parted):
    view = DivergenceView(parted)
    first = parted.first
    assert (view.step, view.stream, view.tensor, view.rank) == (
        first.step, first.stream, first.tensor, None,
    )  # fmt: skip
    assert view._cell["tensor"] == first.tensor
    assert view._error == ""


def test_it_follows_its_traits(parted):
    view = DivergenceView(parted)
    view.step = 7
    assert view._cell["step"] == 7
    view.stream = "params"
    assert view._heat["stream"] == "params"
    view.rank = 1
    assert view._heat["rank"] == 1
    assert view._cell["rank"] == "rank 1"
    view.tensor = "scale"
    assert view._cell["tensor"] == "scale"


def test_a_stream_without_the_chosen_tensor_chooses_another(parted):
    view = DivergenceView(parted)
    view.stream = "loss"
    assert view.tensor == "loss"
    assert view._cell["stream"] == "loss"


@pytest.mark.parametrize(("trait", "value"), [("step", 99), ("stream", "activations"), ("rank", 7)])
def test_what_was_not_compared_is_refused(parted, trait, value):
    view = DivergenceView(parted)
    with pytest.raises(traitlets.TraitError, match="was not compared"):
        setattr(view, trait, value)


def test_views_can_be_linked(parted, same):
    one, two = DivergenceView(parted), DivergenceView(same)
    traitlets.link((one, "step"), (two, "step"))
    one.step = 9
    assert two.step == 9


def test_an_error_in_a_callback_is_shown_and_goes_away(parted):
    view = DivergenceView(parted)
    whole, view.comparison = view.comparison, None
    view.step = 5
    assert "AttributeError" in view._error
    view.comparison = whole
    view.step = 6
    assert view._error == ""


def test_an_error_stays_until_what_failed_succeeds(parted, monkeypatch):
    view = DivergenceView(parted)
    with monkeypatch.context() as broken:
        broken.setattr("reprolab.views.divergence.heat", None)
        view.stream = "params"
    assert "TypeError" in view._error
    view.step = 6
    assert "TypeError" in view._error
    view.stream = "grads_local"
    assert view._error == ""


def test_the_same_runs(same):
    view = DivergenceView(same)
    assert same.same
    assert view._summary["first"] is None
    assert view._summary["differing"] == []
    assert view.tensor in view._heat["tensors"]
    assert view._cell["says"] == "Exactly equal."


def test_ranks_of_one_run(trained):
    view = DivergenceView(compare(trained("baseline")))
    assert view._summary["names"] == ["rank 0", "the other ranks"]
    assert view._error == ""


@pytest.mark.parametrize(
    "options", [{"steps": 1}, {"streams": ["params"]}, {"streams": ["loss"]}, {"ranks": 1}]
)
def test_little_was_recorded(trained, options):
    name = "-".join(f"{key}-{value}" for key, value in options.items()).translate(
        str.maketrans("", "", "[]' ")
    )
    view = DivergenceView(
        compare(trained(f"a-{name}", **options), trained(f"b-{name}", part_at=0, **options))
    )
    assert view._error == ""
    assert view._cell["tensor"]


def test_it_says_what_it_shows(parted):
    assert repr(DivergenceView(parted)).startswith("<DivergenceView of baseline and again: step=3")


def test_every_trait_is_documented():
    own = DivergenceView.class_own_traits()
    assert {name for name in own if not name.startswith("_")} == {
        "step",
        "stream",
        "tensor",
        "rank",
    }
    assert all(trait.help for name, trait in own.items() if not name.startswith("_"))
