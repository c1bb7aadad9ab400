"""Fingerprints and differences of tensors: the only door to the compiled kernels.

- *fingerprint*: per block of a tensor an exact digest, moments and a sketch, in one pass over its
  bytes. All three add up over shards, ranks and devices (:func:`merge`).
- *digest*: answers "same bits?". Not cryptographic.
- *moments*: answer "what does it look like?": count, NaN, Inf, min, max, sum, sum of squares.
- *sketch*: answers "how far apart?" without the data (:func:`estimate`), with its error.
- *difference*: everything one pass over two buffers can say about how they differ.
- *twin*: the same computation in NumPy; the oracle in tests, and the fallback where no compiler
  ran (:data:`COMPILED` says which one is in use).
"""

from reprolab.kernels.backend import COMPILED
from reprolab.kernels.difference import ULP_CLASSES, Difference, difference
from reprolab.kernels.distance import Distance, estimate, narrow_rows
from reprolab.kernels.fingerprint import fingerprint, fingerprint_stream
from reprolab.kernels.merge import merge
from reprolab.kernels.rows import Border, Fingerprint

__all__ = [
    "COMPILED",
    "ULP_CLASSES",
    "Border",
    "Difference",
    "Distance",
    "Fingerprint",
    "difference",
    "estimate",
    "fingerprint",
    "fingerprint_stream",
    "merge",
    "narrow_rows",
]
