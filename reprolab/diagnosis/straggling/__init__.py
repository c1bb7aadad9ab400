"""Who was late, what it cost, and what to do about it.

- *lateness*: how late a rank reached a collective, relative to the others (:mod:`.lateness`).
- *graph*: what waits for what within a step; *replay*: what each step takes when some durations are
  others (:mod:`.graph`, :mod:`.model`).
- *slowdown*: S, the mean step time over that of the ideal step (:mod:`.model`).
- *shares*: what the slowdown is made of (:mod:`.shares`).
- *episode*: a rank that is slower than its peers with the same work, from step to step
  (:mod:`.excess`, :mod:`.episodes`).
- *cause*: the class of the slowness, with advice (:mod:`.causes`).
"""

from reprolab.diagnosis.straggling.causes import Cause
from reprolab.diagnosis.straggling.cost import Cost
from reprolab.diagnosis.straggling.door import stragglers
from reprolab.diagnosis.straggling.planning import Proposal
from reprolab.diagnosis.straggling.result import Stragglers
from reprolab.diagnosis.straggling.whatif import WhatIf

__all__ = ["Cause", "Cost", "Proposal", "Stragglers", "WhatIf", "stragglers"]
