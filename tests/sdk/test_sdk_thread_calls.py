"""An interruption may come up anywhere in the thread of a handler, also when the handler has returned."""

from __future__ import annotations

import asyncio
import threading
from types import FrameType
from typing import Any

import pytest

from pulse.outcomes import TimedOut
from pulse.worker import threads
from pulse.worker.threads import HandlerThreads


class Interruption:
    """Raises the error at a line of the thread's own code, the first after the function or a later one."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.may_come = False
        self.has_come = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != threads.__file__:
            return None
        if self.may_come and not self.has_come and event in ("call", "line"):
            self._left -= 1
            if self._left < 0:
                self.has_come = True
                raise TimedOut
        return self.trace


@pytest.mark.parametrize("at", range(12))
async def test_call_is_delivered_wherever_its_interruption_comes_up(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    interruption = Interruption(at)
    monkeypatch.setattr(threads, "raise_in_thread", lambda *_: True)  # it comes up late
    began, may_return = threading.Event(), threading.Event()

    def function() -> str:
        began.set()
        may_return.wait()
        interruption.may_come = True
        return "the result"

    pool = HandlerThreads(asyncio.get_running_loop(), 1)
    threading.settrace(interruption.trace)
    try:
        call = pool.start(function)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    await asyncio.to_thread(began.wait)
    call.interrupt(TimedOut)
    may_return.set()
    try:
        assert await asyncio.wait_for(pool.result(call), 20) == "the result"
    except TimedOut:
        assert interruption.has_come
    # Another thread takes the next call.
    assert await asyncio.wait_for(pool.result(pool.start(lambda: "next")), 20) == "next"
    pool.close()


async def test_interruption_of_a_call_that_is_over_leaves_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = HandlerThreads(asyncio.get_running_loop(), 1)
    posted = threading.Event()
    post = pool._post
    monkeypatch.setattr(pool, "_post", lambda call: (post(call), posted.set())[0])
    first = pool.start(threading.get_ident)
    posted.wait()  # the event loop has not taken the result yet
    first.interrupt(TimedOut)
    thread_id = await pool.result(first)
    for _ in range(3):
        assert await asyncio.wait_for(pool.result(pool.start(threading.get_ident)), 20) == thread_id
    pool.close()
