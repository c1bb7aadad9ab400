"""The report, opened as a file."""

import pytest

from reprolab.views import report

pytestmark = pytest.mark.browser

DRAWN = """canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""


@pytest.fixture(scope="module")
def pages(parted, same, ugly, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: report(comparison, folder / f"{name}.html").as_uri()
        for name, comparison in {"parted": parted, "same": same, "ugly": ugly}.items()
    }


def opened(watch, address, **options):
    watched = watch(**({"viewport": {"width": 1000, "height": 800}} | options))
    watched.page.goto(address)
    watched.page.wait_for_selector(".rl-chart canvas")
    return watched.page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 400])
@pytest.mark.parametrize("name", ["parted", "same", "ugly"])
def test_everything_is_drawn_and_nothing_sticks_out(watch, pages, shots, name, width, scheme):
    page = opened(watch, pages[name], viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.screenshot(path=shots / f"report-{name}-{width}-{scheme}.png", full_page=width == 400)
    for canvas in page.locator(".rl-chart canvas, .rl-over, .rl-axis").all():
        assert canvas.evaluate(DRAWN) > 5
    assert page.locator(".rl-base").evaluate(DRAWN) >= 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_can_be_driven(watch, pages, parted):
    page = opened(watch, pages["parted"])
    page.get_by_label("Step", exact=True).press("End")
    assert page.locator(".rl-step").inner_text().startswith("step 11")
    page.get_by_label("Stream").select_option(label="params ≠")
    assert page.locator(".rl-heat strong").inner_text() == "params"
    page.get_by_label("Rank").select_option(label="1")
    assert "rank 1" in page.locator(".rl-heat figcaption").inner_text()
    page.locator(".rl-first").click()
    assert page.locator(".rl-name").inner_text() == parted.first.tensor
    assert "first difference" in page.locator(".rl-says").inner_text()


def test_names_are_text(watch, pages):
    page = opened(watch, pages["ugly"])
    assert page.title() == "ugly and uglier: different"
    assert page.locator("img, b").count() == 0
