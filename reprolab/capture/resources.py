"""What this process uses: processor time, memory, bytes read and written, GPU memory."""

from __future__ import annotations

from time import perf_counter

import psutil
import torch

_SECONDS = 1.0
"""Asking the kernel costs more than a short step is worth."""


class Resources:
    """Samples this process's resources, at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._asked = -_SECONDS

    def sample(self) -> dict[str, float] | None:
        """Totals since the process began, or `None` within a second of the last sample.

        Returns
        -------
        dict
            ``cpu_user`` and ``cpu_system`` in seconds; ``rss``, ``read_bytes``, ``write_bytes``
            (what reached the storage, where the system tells), ``cuda:<i>.allocated`` and
            ``.peak`` in bytes; ``threads``.
        """
        now = perf_counter()
        if now - self._asked < _SECONDS:
            return None
        self._asked = now
        found: dict[str, float] = {}
        with self._process.oneshot():
            times = self._process.cpu_times()
            found["cpu_user"], found["cpu_system"] = times.user, times.system
            found["rss"] = self._process.memory_info().rss
            found["threads"] = self._process.num_threads()
            # macOS does not count a process's input and output.
            if hasattr(self._process, "io_counters"):
                counters = self._process.io_counters()
                found["read_bytes"] = counters.read_bytes
                found["write_bytes"] = counters.write_bytes
        if torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                found[f"cuda:{index}.allocated"] = torch.cuda.memory_allocated(index)
                found[f"cuda:{index}.peak"] = torch.cuda.max_memory_allocated(index)
        return found
