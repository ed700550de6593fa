"""Warns when a handler blocks the event loop, with the handler and the line.

The event loop records that it runs, four times a second. The heartbeat thread checks the record: it
runs while the event loop is blocked. Jobs cost nothing extra.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pulse.error_text import in_a_line
from pulse.handlers.handler import Handler

logger = logging.getLogger("pulse.worker")

_TICK_SECONDS = 0.25
# Shorter blocks are common and do no harm: heartbeats continue, and other jobs start a moment
# later.
_BLOCKED_SECONDS = 1.0
_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_SELECTORS = f"{os.sep}selectors.py"


class LoopWatch:
    """Watches one event loop, from another thread. Each time that it is blocked, it is reported once."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        """Create it in the thread of the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._topics = {code: handler.topic for handler in handlers for code in _codes(handler.function)}
        self._timer: asyncio.TimerHandle | None = None
        self._ran_at = self._looked_at = time.monotonic()
        self._is_reported = False

    def start(self) -> None:
        """Record from now on that the event loop runs."""
        self._ran_at = time.monotonic()
        self._is_reported = False
        self._timer = self._loop.call_later(_TICK_SECONDS, self.start)

    def stop(self) -> None:
        """Stop recording. Call `look` no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Warn if the event loop is blocked. In another thread, every quarter of a second or so."""
        now = time.monotonic()
        unseen_seconds, self._looked_at = now - self._looked_at, now
        blocked_seconds = now - self._ran_at - _TICK_SECONDS
        if self._timer is None or self._is_reported or blocked_seconds < _BLOCKED_SECONDS:
            return
        if unseen_seconds >= _BLOCKED_SECONDS:
            return  # this thread stood still as well: the whole process did
        frame = sys._current_frames().get(self._thread_id)
        if frame is None or _is_idle(frame):
            return
        self._is_reported = True
        logger.warning(
            "The event loop has been blocked for %.1f s by %s. No other job of the worker goes on meanwhile. "
            "Use async calls, `await asyncio.to_thread(…)`, or make the handler a `def`.",
            blocked_seconds,
            self._culprit(frame),
        )

    def _culprit(self, innermost: FrameType) -> str:
        frame: FrameType | None = innermost
        while frame is not None:
            topic = self._topics.get(frame.f_code)
            if topic is not None:
                place = f"the handler for '{in_a_line(topic)}', {_place(frame)}"
                return place if frame is innermost else f"{place}, inside {_place(innermost)}"
            frame = frame.f_back
        return _place(innermost)


def _codes(function: Any) -> Iterable[CodeType]:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return (code,) if isinstance(code, CodeType) else ()


def _place(frame: FrameType) -> str:
    return f'line {frame.f_lineno} of "{frame.f_code.co_filename}", in {frame.f_code.co_qualname}'


def _is_idle(frame: FrameType) -> bool:
    """True if the event loop waits for events, or was about to run: the machine was busy."""
    name = frame.f_code.co_filename
    return name.startswith(_ASYNCIO) or name.endswith(_SELECTORS)
