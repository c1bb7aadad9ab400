"""How a result finds its view without knowing it."""

import subprocess
import sys

import pytest

from reprolab.comparison import display


class Result:
    def __repr__(self):
        return "what it says"


class Entry:
    def __init__(self, load):
        self.load = load


class View:
    def __init__(self, result):
        self.result = result

    def _repr_mimebundle_(self):
        return {"application/x-view": self.result, "text/plain": "a view"}, {}


@pytest.fixture
def installed(monkeypatch):
    """Pretend to be in a notebook where an entry point gives this view of a Result."""

    def install(load):
        def entry_points(*, group, name):
            return [Entry(load)] if (group, name) == ("reprolab.views", "Result") else []

        monkeypatch.setattr(display, "in_notebook", lambda: True)
        monkeypatch.setattr(display, "entry_points", entry_points)

    return install


def test_a_notebook_gets_the_view_and_the_text(installed):
    installed(lambda: View)
    result = Result()
    shown = display.bundle(result, include=None, exclude=None)
    assert shown == {"application/x-view": result, "text/plain": "what it says"}


def test_without_the_libraries_of_views_the_text_is_left(installed):
    def load():
        raise ImportError("no altair")

    installed(load)
    assert display.bundle(Result()) == {"text/plain": "what it says"}


def test_outside_of_a_notebook_no_view_is_made(monkeypatch):
    def entry_points(**_):
        raise AssertionError("looked for views")

    monkeypatch.setattr(display, "entry_points", entry_points)
    assert display.bundle(Result()) == {"text/plain": "what it says"}


def test_comparing_imports_no_view():
    script = "import sys, reprolab.comparison; print('reprolab.views' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_view_of_a_comparison_is_registered():
    from importlib.metadata import entry_points

    (entry,) = entry_points(group=display.GROUP, name="Comparison")
    assert entry.value == "reprolab.views:DivergenceView"
