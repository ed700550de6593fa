"""Ends processes that do not end by themselves.

A worker has stopped, and threads or tasks of its handlers still run. Or C code holds the
interpreter: a regular expression, or a power of huge numbers. Then no Python code runs: no
heartbeat, no time limit, no signal handler. So the kernel ends the process, by a timer of its CPU
time that a thread keeps resetting. A process that is stopped or waits uses no CPU time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from pulse import tuning
from pulse.errors import PulseError
from pulse.stacks import stack_of_task

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

logger = logging.getLogger("pulse.worker")

# The time for the application to close its resources, after the worker has stopped.
END_SECONDS = 5.0
_FRAMES = 5


@contextlib.contextmanager
def ending_soon() -> Iterator[None]:
    """End the process soon after the block, with code 0, or 1 if it raises.

    Otherwise a thread that never ends would keep the interpreter from its exit: a `time.sleep()` in
    `asyncio.to_thread()`, in an executor or in a thread of the handler's own cannot be interrupted. Nor can a
    task that swallows its cancellations.
    """
    loop = asyncio._get_running_loop()
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        ending = threading.Timer(END_SECONDS, _end, (failure, loop))
        ending.daemon = True
        ending.start()


def _end(failure: BaseException | None, loop: asyncio.AbstractEventLoop | None) -> None:
    with contextlib.suppress(Exception):
        if isinstance(failure, PulseError) and loop is not None and loop.is_running():
            logger.error("%s", failure)  # nothing has, as long as the loop does not end
        _explain(loop)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    end_at_once(0 if failure is None else 1)


def _explain(loop: asyncio.AbstractEventLoop | None) -> None:
    """Log what keeps the process."""
    frames = sys._current_frames()
    is_explained = False
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread.daemon or thread is threading.main_thread() or frame is None or _is_idle(frame):
            continue
        stack = "".join(traceback.format_stack(frame)[-_FRAMES:])
        logger.warning("Thread %s does not end, so the process exits:\n%s", thread.name, stack)
        is_explained = True
    for child in children():
        logger.warning("Process %s (pid %d) does not end, so it is killed.", child.name, child.pid)
        is_explained = True
    # The event loop has a task that waits for its threads.
    for task in asyncio.all_tasks(loop) if loop is not None and not is_explained else ():
        logger.warning(
            "Task %s does not end, so the process exits:\n%s", task.get_name(), stack_of_task(task)
        )


def _is_idle(frame: FrameType) -> bool:
    """True for a thread of an executor that waits for work. It ends with the interpreter."""
    return frame.f_code is concurrent.futures.thread._worker.__code__


def end_at_once(code: int) -> NoReturn:
    """End the process, and with it the children that multiprocessing has started in it.

    At an ordinary exit the interpreter waits for them. After this one they would wait for work for ever.
    """
    with contextlib.suppress(Exception):
        for child in children():
            child.kill()
    os._exit(code)


def children() -> list[BaseProcess]:
    """Return the running children that multiprocessing has started, process pools included."""
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()


@contextlib.contextmanager
def ended_if_frozen() -> Iterator[None]:
    """End the process with SIGPROF, and the stacks of its threads, if no Python code runs in it for long."""
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL:
        yield
        return
    with contextlib.suppress(Exception):  # a standard error that is no file: then without the stacks
        faulthandler.register(signal.SIGPROF, chain=True)
    is_over = threading.Event()
    # On many cores, code that does not keep the interpreter may use a lot of CPU between two looks.
    seconds = max(tuning.FROZEN_CPU_SECONDS, 5 * tuning.FROZEN_LOOK_SECONDS * (os.cpu_count() or 1))
    _set_back(seconds)
    threading.Thread(target=_watch, args=(seconds, is_over), name="pulse-frozen", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _watch(seconds: float, is_over: threading.Event) -> None:
    while not is_over.wait(tuning.FROZEN_LOOK_SECONDS):
        _, interval = signal.getitimer(signal.ITIMER_PROF)
        if interval:
            return  # a profiler uses the timer
        _set_back(seconds)
    _set_back(0)


def _set_back(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
