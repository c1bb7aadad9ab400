"""The graph of one step's operations on all ranks, and the durations of every step in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from reprolab.kernels.replay import Schedule, schedule

NODES = pl.Schema(
    {
        "rank": pl.Int32(),
        "dp": pl.Int32(),
        "stage": pl.Int32(),
        "operation": pl.String(),
        "role": pl.String(),
        "sequence": pl.Int32(),
        "microbatch": pl.Int32(),
    }
)
"""Columns that describe a node."""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """What waits for what within one step; all steps of a trace share it."""

    nodes: pl.DataFrame
    """One row a node, with the columns of ``NODES``."""
    group: np.ndarray
    """int32 [nodes]: communication of each node, numbered from 0 without gaps."""
    size: np.ndarray
    """int32 [nodes]: how many nodes the node's communication has."""
    meets: np.ndarray
    """bool [nodes]: whether the node is a communication, even if its peers were not traced."""
    peers: np.ndarray
    """int [nodes]: class of each node, from 0; nodes of one class should take equally long."""
    robust: bool
    """Whether the typical work of a class is its median, or its mean."""
    schedule: Schedule


def assemble(
    nodes: pl.DataFrame,
    waits: list[list[int]],
    groups: list[list[int]],
    meets: list[int],
    *,
    peers: np.ndarray,
    robust: bool,
) -> Graph:
    """Make a graph from lists.

    Parameters
    ----------
    nodes : polars.DataFrame
        With the columns of ``NODES``.
    waits : list of list of int
        For each node the nodes it waits for.
    groups : list of list of int
        Nodes of each communication; nodes in none of them stand alone.
    meets : list of int
        Nodes that are communications.
    peers : int [nodes]
        Class of each node.
    robust : bool
        Whether the typical work of a class is its median.
    """
    count = len(nodes)
    group = np.full(count, -1, np.int32)
    for number, members in enumerate(groups):
        group[members] = number
    alone = np.flatnonzero(group < 0)
    group[alone] = np.arange(len(groups), len(groups) + len(alone))
    first = np.zeros(count + 1, np.int32)
    np.cumsum([len(found) for found in waits], out=first[1:])
    before = np.fromiter((node for found in waits for node in found), np.int32, first[-1])
    size = np.bincount(group)[group].astype(np.int32)
    communicates = np.zeros(count, bool)
    communicates[meets] = True
    order = schedule(group, first, before)
    return Graph(nodes, group, size, communicates, peers, robust, order)
