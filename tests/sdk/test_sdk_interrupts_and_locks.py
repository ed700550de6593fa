"""An interruption does not come up inside of `logging`: its locks would stay taken, and block all threads."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pulse.outcomes import TimedOut
from pulse.worker.threads import HandlerThreads
from tests.eventually import eventually


class Silent(logging.Handler):
    """Writes nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        pass


def can_be_taken(lock: threading.RLock) -> bool:
    if not lock.acquire(timeout=5):
        return False
    lock.release()
    return True


@pytest.fixture
def silent() -> Iterator[tuple[logging.Logger, Silent]]:
    logger, handler = logging.getLogger("tests.interrupts"), Silent()
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, handler
    logger.removeHandler(handler)


async def test_lock_of_a_log_is_released_by_a_handler_that_is_interrupted(
    silent: tuple[logging.Logger, Silent],
) -> None:
    logger, handler = silent
    lock = handler.lock
    assert lock is not None
    begins = threading.Event()

    def handler_of_a_job() -> None:
        begins.set()
        logger.warning("It waits for the lock.")
        while True:
            time.sleep(0.001)

    def is_inside_logging() -> bool:
        frame = sys._current_frames().get(call.thread_id or 0)
        return frame is not None and frame.f_code.co_filename == logging.__file__

    pool = HandlerThreads(asyncio.get_running_loop(), 1)
    with lock:
        call = pool.start(handler_of_a_job)
        await asyncio.to_thread(begins.wait)
        await eventually(is_inside_logging)
        call.interrupt(TimedOut)
    with pytest.raises(TimedOut):
        await asyncio.wait_for(pool.result(call), 20)
    assert await asyncio.to_thread(can_be_taken, lock)
    pool.close()
