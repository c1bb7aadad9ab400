"""Which kernels run: the compiled ones, or their NumPy twins where no compiler ran."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType

if sys.byteorder != "little":
    raise ImportError(
        "reprolab's fingerprints are defined on little-endian bytes; this machine is not"
    )


passes: ModuleType | None
try:
    passes = import_module("reprolab.kernels._passes")
except ImportError:
    passes = None

COMPILED = passes is not None
"""Whether the compiled kernels are in use."""

if not COMPILED:
    warnings.warn(
        "reprolab's compiled kernels are missing, so their NumPy versions are used: the results "
        "are the same, only much slower. To compile, install a C compiler and reinstall reprolab",
        RuntimeWarning,
        stacklevel=2,
    )
