"""The page to send to someone, as text; the browser tests open it."""

import base64
import json
from html.parser import HTMLParser

import pytest

from reprolab.comparison import compare
from reprolab.views import report


class Page(HTMLParser):
    """Elements, the text of each script, and the text outside of them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        elif self.cdata_elem is None:
            self.text += data


@pytest.fixture(scope="module")
def page(parted, tmp_path_factory):
    path = report(parted, tmp_path_factory.mktemp("page") / "report.html")
    return Page(path.read_text())


def test_the_page_loads_nothing(page):
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href"} & set(attributes)
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "eval" not in policy


def test_verdict_settings_rows_and_notes_are_there_without_scripts(page, parted):
    assert parted.verdict in page.text
    assert "<b>0.05</b>" in page.text
    assert parted.rows["tensor"][0] in page.text
    for note in parted.notes:
        assert note in page.text


def test_all_maps_are_kept(page, parted):
    stored = json.loads(page.scripts[0])
    assert {(heat["stream"], heat["rank"]) for heat in stored["heats"]} == {
        (stream, rank) for stream in parted.streams for rank in (None, 0, 1)
    }
    for heat in stored["heats"]:
        frame = base64.b64decode(heat["frame"])
        assert len(frame) == len(heat["tensors"]) * len(heat["steps"])
    first = parted.first
    assert any(
        (cell["step"], cell["stream"], cell["tensor"]) == (first.step, first.stream, first.tensor)
        for cell in stored["cells"]
    )


def test_names_stay_text(trained, ugly, tmp_path):
    page = Page(report(ugly, tmp_path / "report.html").read_text())
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert "img" not in {tag for tag, _ in page.elements}
    assert "<script>document.title='owned'</script>" in page.text
    assert "\u202e" not in page.text
    assert "⟨U+202E⟩elacs" in page.text


def test_the_same_runs_and_the_ranks_of_one(same, trained, tmp_path):
    text = report(same, tmp_path / "same.html").read_text()
    assert "the same" in Page(text).text
    ranks = report(compare(trained("baseline")), tmp_path / "ranks.html").read_text()
    assert "rank 0 and the other ranks" in Page(ranks).text


def test_an_existing_page_is_replaced(same, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    assert report(same, str(path)) == path
    assert "old" not in path.read_text()[:200]
