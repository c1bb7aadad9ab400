"""What the names that recorders give to collectives mean."""

from __future__ import annotations

import re

from reprolab.tables.operations import BARRIER, EXCHANGE, RECV, SEND

_KNOWN = tuple(
    (re.compile(pattern, re.IGNORECASE), name, role)
    for pattern, name, role in (
        (r"all_?-?reduce", "all-reduce", BARRIER),
        (r"all_?-?gather", "all-gather", BARRIER),
        (r"reduce_?-?scatter", "reduce-scatter", BARRIER),
        (r"barrier", "barrier", BARRIER),
        (r"all_?-?to_?-?all", "all-to-all", EXCHANGE),
        (r"broadcast", "broadcast", EXCHANGE),
        (r"gather", "gather", EXCHANGE),
        (r"scatter", "scatter", EXCHANGE),
        (r"reduce", "reduce", EXCHANGE),
        (r"send_?-?recv", "send-recv", EXCHANGE),
        (r"recv", "recv", RECV),
        (r"send", "send", SEND),
    )
)


def collective(told: str) -> tuple[str, str]:
    """Plain name and role of a collective that a recorder names in its own way.

    Examples
    --------
    >>> collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)")
    ('all-reduce', 'barrier')
    >>> collective("nccl:_all_gather_base")
    ('all-gather', 'barrier')
    """
    for pattern, name, role in _KNOWN:
        if pattern.search(told):
            return name, role
    return "collective", EXCHANGE
