import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from reprolab.errors import WorkerLost
from reprolab.formats.tasks import run_tasks


def double(number):
    return 2 * number


def die(number):
    os._exit(3)


def run(function, tasks, executor=None):
    return dict(run_tasks(function, tasks, executor, sizes=[1] * len(tasks), label="test"))


def test_results_come_with_their_places():
    expected = {n: 2 * n for n in range(50)}
    assert run(double, range(50)) == expected
    with ThreadPoolExecutor(2) as threads:
        assert run(double, range(50), threads) == expected
        assert run(double, [], threads) == {}


def test_a_failure_cancels_what_has_not_begun():
    begun = []
    gate = threading.Event()

    def work(number):
        begun.append(number)
        if number == 0:
            raise ZeroDivisionError("the first task")
        gate.wait(10)

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(ZeroDivisionError):
            run(work, range(1000), threads)
        gate.set()
    assert len(begun) <= 2


def test_stopping_to_listen_cancels_what_has_not_begun():
    begun = []

    def work(number):
        begun.append(number)
        time.sleep(0.01)

    with ThreadPoolExecutor(1) as threads:
        results = run_tasks(work, range(1000), threads, sizes=[1] * 1000, label="test")
        next(results)
        results.close()
    assert len(begun) < 10


def test_few_tasks_are_handed_out_ahead():
    handed = []

    class Watched(ThreadPoolExecutor):
        def submit(self, function, *args):
            handed.append(args)
            return super().submit(function, *args)

    with Watched(2) as threads:
        results = run_tasks(double, range(1000), threads, sizes=[1] * 1000, label="test")
        next(results)
        assert len(handed) < 20
        results.close()


def test_a_dead_worker_is_a_clear_error():
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=context) as processes,
        pytest.raises(WorkerLost, match=r"died.*nothing was concluded"),
    ):
        run(die, range(5), processes)
