"""The worker of the project, in a thread: its signals are sent in the process of the tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulse.django.clients import client

PATIENCE_SECONDS = 60


@contextmanager
def running_worker() -> Iterator[None]:
    """Run all handlers of the project for the length of a block."""
    thread = threading.Thread(target=client().run, kwargs={"handle_signals": False}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        client()._stop_worker()  # type: ignore[misc]  # it runs
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def finished(result: Any) -> Any:
    """Wait until the task has finished, and return its result, read again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        result.refresh()
        if result.is_finished:
            return result
        assert time.monotonic() < deadline, result
        time.sleep(0.01)
