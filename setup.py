"""Compile the kernels; where no compiler works, install without them."""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("cython").glob("_*.pyx"))
HEADERS = sorted(map(str, Path("cython").glob("*.h")))
if not SOURCES:
    raise SystemExit("cython/_*.pyx is missing: this source tree is incomplete")

# Nothing here may change what NaN, infinities or the order of sums mean.
FLAGS = ["-O3", "-g0", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno"]
if sys.platform == "linux":
    FLAGS.append("-Wno-psabi")

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"reprolab.kernels.{source.stem}",
                [str(source)],
                include_dirs=["cython"],
                depends=HEADERS,
                extra_compile_args=FLAGS,
                optional=True,
            )
            for source in SOURCES
        ],
        build_dir="build",
    ),
)
