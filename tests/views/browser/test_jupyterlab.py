"""The view in a real JupyterLab, driven by keyboard and mouse, without a network.

One page is driven from test to test, because starting a kernel takes seconds. Each test puts the
view where it needs it; the last one judges what the page did meanwhile.
"""

import pytest

pytestmark = pytest.mark.browser

COLOURS = """canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""

EDGES = """canvas => {
    const pen = canvas.getContext('2d'), ratio = canvas.width / canvas.clientWidth;
    const inked = (x, y) => pen.getImageData(x, y, 1, 1).data[3] > 0;
    const xs = [...Array(canvas.width).keys()].filter(x => inked(x, Math.round(12 * ratio)));
    const ys = [...Array(canvas.height).keys()].filter(y => inked(xs[2], y));
    return [xs[0], ys[0], xs.at(-1) + 1, ys.at(-1) + 1].map(value => value / ratio);
}"""
"""Left, top, right and bottom edge of the drawn cells, in CSS pixels of the canvas."""

RUN = """async number => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = number;
    await window.jupyterapp.commands.execute('notebook:run-cell');
}"""

READY = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.sessionContext?.session?.kernel?.status === 'idle';
}"""


class Bench:
    """A notebook in JupyterLab with a view in its first cell."""

    def __init__(self, watched):
        self.watched = watched
        self.page = watched.page
        self.view = self.cell(0).locator(".rl-view")
        self.slider = self.view.get_by_label("Step", exact=True)
        self.map = self.view.locator(".rl-over")

    def cell(self, number):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def cells(self):
        return self.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length")

    def run(self, number):
        self.page.evaluate(RUN, number)

    def kernel(self):
        """Where the view stands, as the kernel knows it: step, stream, tensor, rank."""
        self.run(1)
        return self.cell(1).locator(".jp-OutputArea-output pre").inner_text().strip().split("|")

    def says(self, text):
        """Wait until the selected cell's details are up to date and hold a text."""
        self.view.locator(".rl-details:not(.rl-stale)", has_text=text).wait_for(timeout=5000)

    def go(self, step, stream="grads ≠"):
        """Put the view somewhere, by its own controls."""
        self.view.get_by_label("Stream").select_option(label=stream)
        self.slider.press("Home")
        for _ in range(step):
            self.slider.press("ArrowRight")
        self.says(f"step {step} · {stream.split()[0]} · ")

    def click(self, column, row):
        """Click the middle of a cell of the map; there are 12 columns and 4 rows."""
        left, top, right, bottom = self.view.locator(".rl-base").evaluate(EDGES)
        x = left + (right - left) * (column + 0.5) / 12
        y = top + (bottom - top) * (row + 0.5) / 4
        self.map.click(position={"x": x, "y": y})


@pytest.fixture(scope="module")
def bench(chromium, jupyterlab, trained, same, ugly):
    pair = trained("baseline"), trained("again", part_at=3, config={"lr": "<b>0.05</b>"})
    address = jupyterlab.notebook(
        f"import reprolab as rl\nview = rl.DivergenceView(rl.compare{tuple(map(str, pair))})\nview",
        "print(view.step, view.stream, view.tensor, view.rank, sep='|')",
        f"rl.compare{str(same.a.path), str(same.b.path)}",
        f"rl.compare{str(ugly.a.path), str(ugly.b.path)}",
        "kept, view.comparison = view.comparison, None",
        "view.comparison = kept",
    )
    bench = Bench(jupyterlab.watch(chromium, viewport={"width": 1280, "height": 720}))
    bench.page.goto(address)
    bench.page.wait_for_function(READY, timeout=60_000)
    bench.run(0)
    bench.view.locator(".rl-chart canvas").nth(1).wait_for()
    yield bench
    bench.watched.context.close()


def test_everything_is_drawn_on_one_screen(bench, parted, shots):
    bench.page.screenshot(path=shots / "lab-light-1280.png")
    verdict = bench.view.locator(".rl-verdict")
    assert verdict.inner_text().replace("\n", " ").endswith(parted.verdict)
    for part in (verdict, bench.slider, bench.view.locator(".rl-charts")):
        box = part.bounding_box()
        assert box["y"] + box["height"] < 720
    for canvas in bench.view.locator(".rl-chart canvas").all():
        assert canvas.evaluate(COLOURS) > 20
    assert bench.view.locator(".rl-base").evaluate(COLOURS) >= 3
    bench.says("This is the first difference.")


def test_the_keyboard_moves_the_step_and_the_kernel_hears_of_it(bench):
    bench.go(3)
    before = [canvas.screenshot() for canvas in bench.view.locator(".rl-chart canvas").all()]
    bench.slider.press("ArrowRight")
    assert bench.view.locator(".rl-step").inner_text() == "step 4 of 0–11"
    assert bench.slider.get_attribute("aria-valuetext") == "step 4"
    bench.says("step 4 · grads · ")
    after = [canvas.screenshot() for canvas in bench.view.locator(".rl-chart canvas").all()]
    assert all(was != now for was, now in zip(before, after, strict=True))
    assert bench.kernel()[0] == "4"
    bench.slider.press("Shift+ArrowRight")
    assert bench.view.locator(".rl-step").inner_text() == "step 11 of 0–11"
    bench.slider.press("n")
    assert bench.view.locator(".rl-step").inner_text() == "step 3 of 0–11"


def test_a_click_selects_a_cell(bench):
    bench.go(0)
    bench.click(column=5, row=1)
    bench.says("step 5 · grads · ")
    assert bench.view.locator(".rl-name").inner_text() == "layers.0.weight"
    assert "Differs." in bench.view.locator(".rl-says").inner_text()
    assert bench.view.locator(".rl-blocks").evaluate(COLOURS) >= 2
    assert bench.view.locator(".rl-numbers tbody tr").count() > 0
    assert bench.kernel()[:3] == ["5", "grads", "layers.0.weight"]


def test_arrows_move_the_cell_of_the_map(bench):
    bench.go(3)
    bench.click(column=3, row=0)
    bench.map.press("ArrowDown")
    bench.map.press("ArrowLeft")
    bench.says("step 2 · grads · ")
    assert bench.view.locator(".rl-name").inner_text() == "layers.0.weight"
    assert "Exactly equal." in bench.view.locator(".rl-says").inner_text()
    assert "step 2: exactly equal" in bench.map.get_attribute("aria-description")


def test_another_stream_and_rank(bench):
    bench.go(6, "params ≠")
    assert bench.view.locator(".rl-heat strong").inner_text() == "params"
    bench.view.get_by_label("Rank").select_option(label="1")
    bench.says("step 6 · params · rank 1")
    assert bench.kernel()[1:] == ["params", "layers.0.weight", "1"]
    bench.view.get_by_label("Rank").select_option(label="all")


def test_it_plays_and_pauses(bench):
    bench.go(0)
    bench.view.get_by_label("Play").click()
    bench.page.wait_for_function(
        "node => parseInt(node.textContent.slice(5)) >= 3",
        arg=bench.view.locator(".rl-step").element_handle(),
    )
    bench.slider.press(" ")
    shown = bench.view.locator(".rl-step").inner_text()
    bench.page.wait_for_timeout(400)
    assert bench.view.locator(".rl-step").inner_text() == shown
    assert bench.view.get_by_label("Play").is_visible()


def test_typing_over_a_control_deletes_no_cell(bench):
    cells = bench.cells()
    focusable = bench.view.locator("input, button:enabled, select, canvas[tabindex], summary")
    assert focusable.count() >= 8
    for control in focusable.all():
        control.focus()
        bench.page.keyboard.press("d")
        bench.page.keyboard.press("d")
        bench.page.keyboard.press("x")
    assert bench.cells() == cells


def test_every_control_has_a_name(bench):
    nameless = bench.view.evaluate(
        "view => [...view.querySelectorAll('input, button, select, canvas[tabindex]')]"
        ".filter(node => !node.getAttribute('aria-label') && !node.innerText.trim())"
        ".map(node => node.outerHTML)"
    )
    assert nameless == []


def test_an_error_is_shown_in_the_view(bench):
    bench.go(3)
    bench.run(4)
    bench.slider.press("ArrowRight")
    alert = bench.view.get_by_role("alert")
    alert.wait_for()
    assert "AttributeError" in alert.inner_text()
    bench.run(5)
    bench.slider.press("ArrowRight")
    alert.wait_for(state="hidden")


def test_a_result_shows_itself(bench, same, shots):
    bench.run(2)
    shown = bench.cell(2).locator(".rl-view")
    shown.locator(".rl-chart canvas").nth(1).wait_for()
    assert shown.locator(".rl-badge").inner_text() == "same"
    assert same.verdict in shown.locator(".rl-verdict").inner_text().replace("\n", " ")
    shown.screenshot(path=shots / "lab-same.png")


def test_names_are_text(bench, shots):
    bench.run(3)
    shown = bench.cell(3).locator(".rl-view")
    shown.locator(".rl-chart canvas").nth(1).wait_for()
    shown.get_by_label("Stream").select_option(label="params ≠")
    shown.locator(".rl-details:not(.rl-stale)", has_text="params").wait_for()
    shown.locator(".rl-over").press("ArrowUp")
    shown.locator(".rl-over").hover(position={"x": 400, "y": 30})
    shown.screenshot(path=shots / "lab-ugly.png")
    assert shown.locator("script, img, b").count() == 0
    assert "owned" not in bench.page.title()


def test_dark_and_narrow(bench, shots):
    bench.go(3)
    light = bench.view.locator(".rl-base").screenshot()
    bench.watched.command("apputils:change-theme", theme="JupyterLab Dark")
    bench.page.wait_for_selector(".rl-view.rl-dark")
    bench.page.wait_for_timeout(1000)
    bench.watched.command("application:toggle-left-area")
    bench.page.screenshot(path=shots / "lab-dark-1280.png")
    assert bench.view.locator(".rl-base").screenshot() != light
    bench.page.set_viewport_size({"width": 400, "height": 900})
    bench.page.wait_for_timeout(500)
    for name in ("dark", "light"):
        bench.watched.command("apputils:change-theme", theme=f"JupyterLab {name.title()}")
        bench.page.wait_for_timeout(1000)
        for number, spot in enumerate((".rl-verdict", ".rl-heat")):
            bench.view.locator(spot).scroll_into_view_if_needed()
            bench.page.screenshot(path=shots / f"lab-{name}-400-{number}.png")
    outside = bench.view.evaluate(
        "view => { const edge = view.getBoundingClientRect().right + 1;"
        " return [...view.querySelectorAll('*')].filter(node => !node.closest('.rl-rows')"
        " && node.getBoundingClientRect().right > edge).map(node => node.outerHTML.slice(0, 80)); }"
    )
    assert outside == []


def test_no_complaint_and_no_request_to_anywhere_else(bench):
    assert bench.watched.complaints == []
    assert bench.watched.strangers == []
