"""Where two sides part: equality, distance, first difference, growth.

- *side*: what is compared is called a and b: two runs, or ranks of one (:func:`compare`).
- *track*: one stream of one rank on both sides, over the steps that both recorded.
- *first difference*: the first in the order step, stream, rank, tensor, block, down to the element
  where a checkpoint holds it (:class:`FirstDifference`, :class:`Element`). Whatever comes before
  it in causal order agrees, and that is what narrows down where it was made.
- *distance*: estimated from sketches, with its standard error, or "below resolution".
- *growth*: distance of whole streams over the steps.
- *verdict*: the findings in one paragraph of plain words, none of them a guess.

::

    pairing   ranks, streams, steps that can be compared, and what cannot
       |
    tracks -> search   first step and stream, by digests of whole streams
       |         |
       |      first -> elements   tensor, block, element
       |         |
       |      causality -> verdict
       |
    distances -> cells -> frames   rows, growth, heat: only when asked for
"""

from reprolab.comparison.bits import Element
from reprolab.comparison.comparing import compare
from reprolab.comparison.first import FirstDifference
from reprolab.comparison.matching import LayoutDifference
from reprolab.comparison.result import Comparison

__all__ = [
    "Comparison",
    "Element",
    "FirstDifference",
    "LayoutDifference",
    "compare",
]
