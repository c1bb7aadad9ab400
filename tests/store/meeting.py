"""Rendezvous for tests: of threads in one process, and of processes through files."""

import os
import threading
import time
from pathlib import Path

from reprolab.errors import RankTimeout


class Table:
    """Where threads meet."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.messages = {}
        self.changed = threading.Condition()


class Seat:
    """One thread's place at a table."""

    def __init__(self, table, rank):
        self.table, self.rank, self.world_size = table, rank, table.world_size

    def post(self, key, payload):
        with self.table.changed:
            assert (key, self.rank) not in self.table.messages, f"{key} was used twice"
            self.table.messages[key, self.rank] = payload
            self.table.changed.notify_all()

    def collect(self, key, timeout):
        keys = [(key, rank) for rank in range(self.world_size)]
        with self.table.changed:
            self.table.changed.wait_for(
                lambda: all(key in self.table.messages for key in keys), timeout
            )
            missing = [rank for key, rank in keys if (key, rank) not in self.table.messages]
            if missing:
                raise RankTimeout(f"no answer for {timeout:g} s", rank=missing)
            return [self.table.messages[key] for key in keys]


class FileMeeting:
    """One process's place in a folder."""

    def __init__(self, folder, rank, world_size):
        self.folder, self.rank, self.world_size = Path(folder), rank, world_size
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key, rank):
        return self.folder / f"{key.replace('/', '+')}@{rank}"

    def post(self, key, payload):
        draft = self._path(key, self.rank).with_suffix(f".{os.getpid()}.draft")
        draft.write_bytes(payload)
        draft.rename(self._path(key, self.rank))

    def collect(self, key, timeout):
        deadline = time.monotonic() + timeout
        while missing := [r for r in range(self.world_size) if not self._path(key, r).exists()]:
            if time.monotonic() > deadline:
                raise RankTimeout(f"no answer for {timeout:g} s", rank=missing)
            time.sleep(0.002)
        return [self._path(key, rank).read_bytes() for rank in range(self.world_size)]
