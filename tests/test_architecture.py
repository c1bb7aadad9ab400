"""The rules of the house: layers import only downward, modules stay small, imports stay lazy."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import reprolab

ROOT = Path(reprolab.__file__).parent
MODULES = {
    ".".join(("reprolab", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}

LAYERS = (
    ("errors", "vocabulary"),
    ("kernels", "policy"),
    ("store",),
    ("capture", "tables", "formats"),
    ("comparison", "traces"),
    ("diagnosis",),
    ("views",),
    ("demo",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

HOME = {
    "zarr": {"store"},
    "polars": {"tables", "comparison", "traces", "diagnosis", "views"},
    "altair": {"views"},
    "ipywidgets": {"views"},
    "anywidget": {"views"},
}
"""Layers that may import a library at all."""

LONGEST = 350


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules named by imports wherever they stand; ``TYPE_CHECKING`` blocks do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module
        else:
            yield from imports(node)


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "reprolab" else None


@cache
def edges() -> dict[str, set[str]]:
    """For each module, the modules of ours that it imports."""
    found = {}
    for module, path in MODULES.items():
        named = set(imports(ast.parse(path.read_text())))
        found[module] = {name for name in named if name in MODULES and name != module}
    return found


def test_every_module_belongs_to_a_layer():
    assert {layer(module) for module in MODULES} - {None} <= set(LEVEL)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_its_own_layer_and_those_below(module):
    here = layer(module)
    if here is None:
        pytest.skip("the root only forwards names, lazily")
    above = {
        name
        for name in edges()[module]
        if (there := layer(name)) is not None and there != here and LEVEL[there] >= LEVEL[here]
    }
    assert not above


def test_no_cycles_between_modules():
    graph = edges()
    state: dict[str, str] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert state.get(module) != "open", f"cycle: {' -> '.join((*trail, module))}"
        if module not in state:
            state[module] = "open"
            for name in graph[module]:
                visit(name, (*trail, module))
            state[module] = "done"

    for module in graph:
        if module != "reprolab":
            visit(module, ())


@pytest.mark.parametrize("module", MODULES)
def test_a_library_is_imported_only_where_it_lives(module):
    named = {name.split(".")[0] for name in imports(ast.parse(MODULES[module].read_text()))}
    strangers = {library for library in named & set(HOME) if layer(module) not in HOME[library]}
    assert not strangers


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module):
    assert len(MODULES[module].read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import reprolab", {"torch", "numpy", "polars", "zarr", "altair", "ipywidgets"}),
        ("import reprolab.capture", {"polars", "altair", "ipywidgets", "zarr"}),
        ("import reprolab.comparison", {"torch", "altair", "ipywidgets"}),
        ("import reprolab.views", {"torch"}),
        ("import reprolab.cli", {"torch", "polars", "altair", "ipywidgets"}),
    ],
)
def test_what_an_import_brings(statement, absent):
    script = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not absent & set(json.loads(done.stdout))


def test_public_names_are_listed_in_the_glossary():
    listed = {
        line.split("``")[1] for line in reprolab.__doc__.splitlines() if line.startswith("``")
    }
    assert listed == set(reprolab.__all__)
    for name in reprolab.__all__:
        assert getattr(reprolab, name).__doc__
