"""Compile the kernels; where no compiler works, install without them."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("cython").glob("_*.pyx"))
LOOPS = {"_passes": sorted(map(str, Path("cython").glob("level_*.c")))}
if not SOURCES or not LOOPS["_passes"]:
    raise SystemExit("cython/_*.pyx or cython/level_*.c is missing: this source tree is incomplete")

# Nothing here may change what NaN, infinities or the order of sums mean. Vectors never cross a
# function's border, so how they would be passed does not matter (psabi).
FLAGS = [
    "-O3",
    "-g0",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-Wno-psabi",
]

EXTENSIONS = cythonize(
    [
        Extension(
            f"reprolab.kernels.{source.stem}",
            [str(source), *LOOPS.get(source.stem, [])],
            include_dirs=["cython"],
            depends=sorted(map(str, Path("cython").glob("*.h"))),
            extra_compile_args=FLAGS,
            libraries=["m"],
        )
        for source in SOURCES
    ],
    build_dir="build",
)
for extension in EXTENSIONS:
    extension.optional = True  # `cythonize` does not pass it on

setup(ext_modules=EXTENSIONS)
