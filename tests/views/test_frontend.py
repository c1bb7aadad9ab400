"""The page side, as far as it can be judged without a browser."""

import re
import shutil
import subprocess

import pytest

from reprolab.views import frontend

ENTRIES = ("widget.js", "report.js")


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_module_stands_alone_and_is_small(entry):
    text = frontend.module(entry)
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)
    assert len(text.encode()) < 50_000


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_makes_markup_or_code_out_of_text(entry):
    text = frontend.module(entry)
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert way not in text


@pytest.mark.parametrize("text", [*map(frontend.module, ENTRIES), frontend.style()])
def test_nothing_names_an_address_to_load_from(text):
    addresses = set(re.findall(r"https?://[^\s\"'`)]+|@import|url\(", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_joined_module_is_a_module(entry, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to parse it with; the browser tests run it")
    path = tmp_path / "joined.mjs"
    path.write_text(frontend.module(entry))
    done = subprocess.run([node, "--check", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_given_twice_is_refused(monkeypatch):
    sources = {
        "a.js": 'import { x } from "./b.js";\n\nconst y = 1;\n',
        "b.js": "export const x = 1;\nfunction y() {}\n",
    }
    monkeypatch.setattr(frontend, "_source", sources.__getitem__)
    with pytest.raises(ValueError, match="given twice: y"):
        frontend.module.__wrapped__("a.js")


def test_what_is_needed_comes_first_and_once(monkeypatch):
    sources = {
        "a.js": 'import { b } from "./b.js";\nimport { c } from "./c.js";\n\na();\n',
        "b.js": 'import { c } from "./c.js";\n\nexport function b() {}\n',
        "c.js": "export const c = 1;\n",
    }
    monkeypatch.setattr(frontend, "_source", sources.__getitem__)
    joined = frontend.module.__wrapped__("a.js")
    assert " ".join(joined.split()) == "const c = 1; function b() {} a();"


def test_the_chart_library_is_one_script_without_an_address_to_load_from():
    text = frontend.vega()
    assert "</script" not in text.lower()
    assert not re.search(r"cdn|unpkg|jsdelivr|esm\.sh", text)
