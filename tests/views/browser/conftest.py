"""A real JupyterLab on loopback, and a real browser that may talk to nothing else."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
QUIET = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@dataclass(frozen=True)
class Server:
    """A running JupyterLab."""

    url: str
    token: str
    folder: Path

    def notebook(self, *sources):
        """Write a notebook of code cells; the address that opens it in JupyterLab."""
        cells = [
            {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "source": source,
             "outputs": [], "execution_count": None}
            for number, source in enumerate(sources)
        ]  # fmt: skip
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
        path = self.folder / f"{len(list(self.folder.iterdir()))}.ipynb"
        path.write_text(json.dumps({**whole, "nbformat_minor": 5}))
        return f"{self.url}lab/tree/{path.name}?reset&token={self.token}"

    @staticmethod
    def watch(browser, **options):
        """A page in `browser` that may talk to nothing but this machine."""
        return Watched(browser, **options)


@contextmanager
def serving(root):
    """Run JupyterLab in `root`; yields the server. Nothing of the user's is read."""
    folders = {
        "JUPYTER_CONFIG_DIR": root / "config",
        "JUPYTER_DATA_DIR": root / "data",
        "JUPYTER_RUNTIME_DIR": root / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": root / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": root / "workspaces",
        "IPYTHONDIR": root / "ipython",
    }
    for folder in (*folders.values(), root / "notebooks"):
        folder.mkdir()
    for name, values in QUIET.items():
        path = root / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    token = os.urandom(16).hex()
    log = root / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
                "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={root / 'notebooks'}", f"--IdentityProvider.token={token}",
                "--LabApp.expose_app_in_browser=True",
            ],
            env={**os.environ, **{key: str(path) for key, path in folders.items()},
                 "OMP_NUM_THREADS": "1"},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield Server(_address(server, root / "runtime", log), token, root / "notebooks")
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _address(server, runtime, log, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                return json.loads(path.read_text())["url"]
            except ValueError:
                break
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


class Watched:
    """A page of which every complaint and every request to anywhere else is kept."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints, self.strangers = [], []
        self.page.on(
            "console",
            lambda message: message.type == "error" and self.complaints.append(message.text),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("websocket", lambda socket: self._note(socket.url))
        self.context.route("**/*", self._pass_or_block)

    def _local(self, address):
        return address.startswith(
            ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:", "about:")
        )

    def _note(self, address):
        if not self._local(address):
            self.strangers.append(address)

    def _pass_or_block(self, route):
        self._note(route.request.url)
        if self._local(route.request.url):
            route.continue_()
        else:
            route.abort()

    def command(self, name, **arguments):
        """Run a command of JupyterLab."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, arguments]
        )


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium. Where there is none the tests are skipped, but never in CI."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed: pip install 'reprolab[test]'")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _missing("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


def _missing(reason):
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def jupyterlab(tmp_path_factory):
    """A running JupyterLab."""
    with serving(tmp_path_factory.mktemp("jupyterlab")) as server:
        yield server


@pytest.fixture
def watch(chromium):
    """Open watched pages; in the end none may have complained or asked for anything elsewhere."""
    opened = []

    def open_page(**options):
        opened.append(Watched(chromium, **options))
        return opened[-1]

    yield open_page
    for watched in opened:
        watched.context.close()
        assert watched.strangers == []
        assert watched.complaints == []


@pytest.fixture(scope="session")
def shots():
    """Folder of screenshots, kept for people to look at."""
    folder = Path(__file__).parents[3] / "artefacts" / "views"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
