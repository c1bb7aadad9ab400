"""Which kernels run: the compiled ones, or their NumPy twins where no compiler ran."""

from __future__ import annotations

import sys

from reprolab.kernels import twin_difference, twin_fingerprint

if sys.byteorder != "little":
    raise ImportError(
        "reprolab's fingerprints are defined on little-endian bytes; this machine is not"
    )

COMPILED = False
"""Whether the compiled kernels are in use."""

__all__ = ["COMPILED", "twin_difference", "twin_fingerprint"]
