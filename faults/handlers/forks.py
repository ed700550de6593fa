"""Handlers that start processes, in all ways that Python has."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from faults.handlers.kinds import LIMIT, TIME_LIMIT, kind
from pulse import JobStatus

COMPLETED, DEAD = JobStatus.COMPLETED, JobStatus.DEAD_LETTERED
_FOREVER_SECONDS = 3600.0


@kind("fork", COMPLETED)
def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@kind("fork-returns", COMPLETED)
def fork_returns() -> None:
    """The child returns from the handler, as a careless program does."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)


@kind("fork-returns-async", COMPLETED)
async def fork_returns_async() -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)  # noqa: ASYNC222


@kind("fork-exits", COMPLETED)
def fork_exits() -> None:
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)


@kind("fork-returns-process", COMPLETED, process=True)
def fork_returns_process() -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)


@kind("subprocess", COMPLETED)
def run_subprocess() -> None:
    subprocess.run(["/bin/sh", "-c", "exit 0"], check=True)


@kind("pool", COMPLETED)
def pool() -> None:
    with ProcessPoolExecutor(1) as executor:
        assert executor.submit(pow, 2, 10).result() == 1024


@kind("pool-long", COMPLETED)
def pool_long() -> None:
    """Its process waits for work for ever if the worker is killed meanwhile."""
    with ProcessPoolExecutor(1) as executor:
        executor.submit(time.sleep, 2).result()


@kind("multiprocessing", COMPLETED)
def multiprocess() -> None:
    child = multiprocessing.Process(target=time.sleep, args=(0.01,))
    child.start()
    child.join()
    assert child.exitcode == 0


@kind("terminate", COMPLETED)
def terminate() -> None:
    """A signal to its child is none to the worker."""
    child = multiprocessing.Process(target=time.sleep, args=(_FOREVER_SECONDS,))
    child.start()
    child.terminate()
    child.join()
    assert child.exitcode == -signal.SIGTERM, child.exitcode


@kind("pool-terminates", COMPLETED)
def pool_terminates() -> None:
    with multiprocessing.Pool(1) as processes:
        assert processes.map(abs, [-1]) == [1]


@kind("pool-process", COMPLETED, process=True)
def pool_process() -> None:
    with ProcessPoolExecutor(1) as executor:
        assert executor.submit(pow, 2, 10).result() == 1024


@kind("grandchild-hangs", DEAD, errors=TIME_LIMIT, timeout=LIMIT, process=True)
def grandchild_hangs() -> None:
    """Both are killed."""
    os.fork()
    time.sleep(_FOREVER_SECONDS)


@kind("grandchild-outlives", DEAD, errors="exited with code 4", process=True)
def grandchild_outlives() -> None:
    """The child keeps the pipe to the worker open."""
    if os.fork() == 0:
        time.sleep(_FOREVER_SECONDS)
    os._exit(4)
