"""How ranks meet: through the store torch started with, beside the training's process groups."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from reprolab.errors import RankTimeout

_SHORTEST, _LONGEST = 0.001, 0.05
"""Seconds between two looks at the store."""

_meetings = 0


class StoreRendezvous:
    """Ranks exchange bytes through a key-value store; no collective of a process group is used.

    Parameters
    ----------
    store : torch.distributed.Store
        Typed too narrowly in torch: it keeps any bytes.
    rank, world_size : int
    prefix : str
        In front of every key.
    """

    def __init__(self, store: Any, rank: int, world_size: int, prefix: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self._store = store
        self._prefix = prefix
        self._collected: str | None = None

    def post(self, key: str, payload: bytes) -> None:
        """Leave this rank's bytes under `key`."""
        self._store.set(self._key(key, self.rank), payload)

    def collect(self, key: str, timeout: float) -> list[bytes]:
        """Bytes of every rank, in rank order.

        Raises
        ------
        RankTimeout
            When ranks have not posted within `timeout` seconds, or have said that they will not.
        """
        deadline = time.monotonic() + timeout
        pause = _SHORTEST
        missing = list(range(self.world_size))
        try:
            while True:
                missing = [rank for rank in missing if not self._has(key, rank)]
                if not missing:
                    return self._take(key)
                left = [rank for rank in missing if self._has("left", rank)]
                if left:
                    reason = self._store.get(self._key("left", left[0])).decode()
                    raise RankTimeout(f"stopped recording: {reason}", rank=_listed(left))
                if time.monotonic() > deadline:
                    raise RankTimeout(
                        f"no answer for {timeout:g} s ({key}). Every rank has to record: call "
                        "record() and rec.step() on all of them, and look whether one has died",
                        rank=_listed(missing),
                    )
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
        except RuntimeError as problem:
            raise RankTimeout(
                f"the store that ranks meet in does not answer ({key}): {problem}. It lives in "
                "rank 0's process; look whether that has died",
                rank=_listed(missing),
            ) from problem

    def _take(self, key: str) -> list[bytes]:
        found = [self._store.get(self._key(key, rank)) for rank in range(self.world_size)]
        # Every rank has posted this key, so every rank has collected the one before.
        if self._collected is not None:
            self._store.delete_key(self._key(self._collected, self.rank))
        self._collected = key
        return found

    def leave(self, reason: str) -> None:
        """Tell the others not to wait for this rank any more."""
        try:
            self.post("left", reason.encode())
        except RuntimeError:
            # The store is gone with the rank that served it, and so is everyone who would ask.
            return

    def _has(self, key: str, rank: int) -> bool:
        return self._store.check([self._key(key, rank)])

    def _key(self, key: str, rank: int) -> str:
        return f"{self._prefix}/{key}/{rank}"


def meet() -> StoreRendezvous | None:
    """A new meeting of all ranks of the default process group; `None` in one process.

    All ranks must hold their meetings in the same order.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    global _meetings
    _meetings += 1
    # A clone has a connection of its own: waiting on it never delays the training's use.
    store: Any = distributed_c10d._get_default_store()
    return StoreRendezvous(
        store.clone(), dist.get_rank(), dist.get_world_size(), f"reprolab/{_meetings}"
    )


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
