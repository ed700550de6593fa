"""Ends the process of a worker that has stopped, although threads or tasks of its handlers still run."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

from pulse.errors import PulseError
from pulse.stacks import stack_of_task
from pulse.sudden_end import children, end_at_once

logger = logging.getLogger("pulse.worker")

# The time for the application to close what it has opened, after the worker has stopped.
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
