"""Work handed to any ``concurrent.futures.Executor`` in small, addressed pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from typing import TypeVar

from tqdm.auto import tqdm

from reprolab.errors import WorkerLost

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 4
"""Tasks handed out for each one that can run, so that no worker waits and few are to be undone."""


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: Executor | None = None,
    *,
    sizes: Sequence[int],
    label: str,
) -> Iterator[tuple[int, Result]]:
    """Run a function on every task and yield results as they arrive.

    Parameters
    ----------
    function : callable
        Importable by name, so that other processes find it.
    tasks : sequence
        Small and picklable: they say where work lies, and never carry it.
    executor : Executor, optional
        Threads of this process by default. Dask's ``Client(...).get_executor()`` and
        ``mpi4py.futures.MPIPoolExecutor`` work as well. It is not shut down.
    sizes : sequence of int
        Bytes each task reads, for the progress bar.
    label : str
        What the progress bar is called.

    Yields
    ------
    (int, result)
        Position of the task, and what came back.

    Raises
    ------
    WorkerLost
        Where a worker process died. Whatever a task raises is raised here; tasks that have not
        begun are cancelled first, and so they are when the caller stops iterating.
    """
    if executor is None:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as threads:
            yield from run_tasks(function, tasks, threads, sizes=sizes, label=label)
        return
    workers = getattr(executor, "_max_workers", None) or 64
    waiting: dict[Future[Result], int] = {}
    rest = iter(range(len(tasks)))
    progress = tqdm(total=sum(sizes), unit="B", unit_scale=True, desc=label, disable=None)
    try:
        with progress:
            while True:
                while len(waiting) < _AHEAD * workers:
                    index = next(rest, None)
                    if index is None:
                        break
                    waiting[executor.submit(function, tasks[index])] = index
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    index = waiting.pop(future)
                    result = future.result()
                    progress.update(sizes[index])
                    yield index, result
    except BrokenExecutor as reason:
        raise WorkerLost(
            f"a worker process died while {len(waiting)} tasks were under way, perhaps for want of "
            "memory; nothing was concluded from them. Start a new executor, with fewer workers"
        ) from reason
    finally:
        for future in waiting:
            future.cancel()
