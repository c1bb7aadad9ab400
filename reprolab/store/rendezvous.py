"""How the ranks of a run meet: outside the training's process groups, with a time limit.

A recorder that used the training's own process groups could interleave with its collectives. So
the ranks leave each other messages instead, in whatever both can reach: a key-value store, files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from reprolab.errors import RankTimeout


class Rendezvous(Protocol):
    """A place where every rank posts one message a key and collects those of all ranks.

    Keys are used once. Two rendezvous never see each other's keys, even where the same processes
    made both. A message may be dropped once its rank has collected a later key: by then every
    rank posted the later one, hence had collected the earlier.
    """

    @property
    def rank(self) -> int:
        """Number of the process, from 0."""

    @property
    def world_size(self) -> int:
        """Number of processes that meet."""

    def post(self, key: str, payload: bytes) -> None:
        """Leave this rank's message; returns at once."""

    def collect(self, key: str, timeout: float) -> list[bytes]:
        """Messages of all ranks in rank order; waits for at most `timeout` seconds.

        Raises
        ------
        RankTimeout
            With the ranks whose message is missing.
        """


class Alone:
    """The rendezvous of a single process.

    Examples
    --------
    >>> alone = Alone()
    >>> alone.post("begin", b"here")
    >>> alone.collect("begin", timeout=1.0)
    [b'here']
    """

    rank = 0
    world_size = 1

    def __init__(self) -> None:
        self._messages: dict[str, bytes] = {}

    def post(self, key: str, payload: bytes) -> None:
        """Leave a message for oneself."""
        self._messages[key] = payload

    def collect(self, key: str, timeout: float) -> list[bytes]:
        """The one message; a missing one will never come."""
        if key not in self._messages:
            raise RankTimeout(f"nothing was posted as {key!r}", rank=0)
        return [self._messages.pop(key)]


def exchange(
    rendezvous: Rendezvous, key: str, message: Mapping[str, Any], timeout: float
) -> list[dict[str, Any]]:
    """Post a message of JSON's types and collect those of all ranks, in rank order."""
    rendezvous.post(key, json.dumps(message).encode())
    return [json.loads(answer) for answer in rendezvous.collect(key, timeout)]
