"""The sdist carries all that the wheel needs, and the wheel all that a reader of runs needs."""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEPENDENCIES = Path(sys.executable).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """An sdist, and a wheel made from that sdist alone."""
    if not (ROOT / "setup.py").is_file():
        pytest.skip("needs the source tree")
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    # With the tools at hand, so that the test needs no network.
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def only(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


def test_the_sdist_carries_the_sources_of_the_kernels(dist):
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    sources = {f"cython/{path.name}" for path in (ROOT / "cython").iterdir()}
    assert sources <= names
    assert {"LICENSE", "README.md", "constraints.txt", "Makefile"} <= names


def test_the_wheel_carries_the_kernels_the_page_and_the_tour(dist):
    with zipfile.ZipFile(only(dist, "*.whl")) as archive:
        names = archive.namelist()
    for part in ("kernels/_passes", "kernels/_replay"):
        assert [
            name for name in names if name.startswith(f"reprolab/{part}") and name.endswith(".so")
        ]
    assert [
        name for name in names if name.startswith("reprolab/views/page/") and name.endswith(".js")
    ]
    assert [name for name in names if name.endswith("share/reprolab/notebooks/01_tour.ipynb")]
    assert not [name for name in names if name.startswith(("tests/", "cython/"))]


def test_the_wheel_works_in_an_environment_of_its_own(dist, tmp_path):
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    wheel = only(dist, "*.whl")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True
    )
    # What it depends on comes from here; reprolab itself must not.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = DEPENDENCIES / "lib" / version / "site-packages"
    script = f"""
import sys
import reprolab
assert reprolab.__file__.startswith({str(tmp_path)!r}), reprolab.__file__
sys.path.append({str(packages)!r})
import numpy
from reprolab.kernels import COMPILED, fingerprint
assert COMPILED
assert "torch" not in sys.modules
print(fingerprint(numpy.arange(4)).digest[0])
"""
    done = subprocess.run(
        [python, "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
