"""Ends the process of a worker that has stopped, although threads of its handlers still run."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator

logger = logging.getLogger("pulse.worker")

# The time for the application to close what it has opened, after the worker has stopped.
END_SECONDS = 5.0
_FRAMES = 5


@contextlib.contextmanager
def ending_soon() -> Iterator[None]:
    """End the process soon after the block, with code 0, or 1 if it raises.

    Otherwise a thread that never ends would keep the interpreter from its exit: a `time.sleep()` in
    `asyncio.to_thread()`, in an executor or in a thread of the handler's own cannot be interrupted.
    """
    code = 0
    try:
        yield
    except BaseException:
        code = 1
        raise
    finally:
        ending = threading.Timer(END_SECONDS, _end, (code,))
        ending.daemon = True
        ending.start()


def _end(code: int) -> None:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.main_thread() or thread.ident is None:
            continue
        stack = traceback.format_stack(frames.get(thread.ident))[-_FRAMES:] if thread.ident in frames else []
        logger.warning("Thread %s does not end, so the process exits:\n%s", thread.name, "".join(stack))
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
