"""Families of operations: what kind of trouble their slowness is."""

from __future__ import annotations

import numpy as np

from reprolab.diagnosis.straggling.graph import Graph
from reprolab.tables.operations import WORK

COMPUTE, DATA, CHECKPOINT, HOST, COMMUNICATION = (
    "compute",
    "data loading",
    "checkpoint",
    "host",
    "communication",
)

FAMILIES = (COMPUTE, DATA, CHECKPOINT, HOST, COMMUNICATION)
"""All families, in the order in which they are listed."""

_WORDS = (
    (CHECKPOINT, ("checkpoint", "save", "snapshot")),
    (DATA, ("data", "load", "fetch", "batch")),
    (HOST, ("gc", "garbage", "host", "idle", "capture")),
)


def family_of(operation: str, role: str) -> str:
    """Family of an operation, from its role and name.

    Examples
    --------
    >>> family_of("forward-compute", "work"), family_of("all-reduce", "barrier")
    ('compute', 'communication')
    """
    if role != WORK:
        return COMMUNICATION
    plain = operation.lower()
    return next((family for family, words in _WORDS if any(w in plain for w in words)), COMPUTE)


def families_of(graph: Graph) -> np.ndarray:
    """Index in `FAMILIES` of each node, int [nodes]."""
    nodes = graph.nodes.select("operation", "role")
    known = {pair: FAMILIES.index(family_of(*pair)) for pair in nodes.unique().iter_rows()}
    return np.array([known[pair] for pair in nodes.iter_rows()], int)
