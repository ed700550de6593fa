"""Handlers that hang."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import re
import time
from datetime import timedelta
from typing import Any

from faults.handlers.kinds import LIMIT, TIME_LIMIT, kind
from pulse import JobStatus

DEAD, COMPLETED = JobStatus.DEAD_LETTERED, JobStatus.COMPLETED
_FOREVER_SECONDS = 3600
# Longer than the limit and the grace: the slot is lost, and found again.
_LONG_SECONDS = 4.0
logger = logging.getLogger("shop")

hangs: dict[str, Any] = {"errors": TIME_LIMIT, "timeout": LIMIT}


@kind("hang-async", DEAD, **hangs)
async def hang_async() -> None:
    await asyncio.sleep(_FOREVER_SECONDS)


@kind("hang-python", DEAD, weight=2, **hangs)
def hang_python() -> None:
    while True:
        pass


@kind("hang-logging", DEAD, weight=2, **hangs)
def hang_logging() -> None:
    """Most of its time the thread is inside of locks."""
    while True:
        logger.debug("%s", "still here")
        logger.info("still here")
        time.sleep(0.001)


@kind("hang-c", DEAD, weight=0.7, is_stuck=True, **hangs)
def hang_c() -> None:
    time.sleep(_LONG_SECONDS)


@kind("hang-for-ever", DEAD, weight=0.15, is_stuck=True, **hangs)
def hang_for_ever() -> None:
    ctypes.CDLL(None).sleep(_FOREVER_SECONDS)


@kind("hang-swallows", DEAD, weight=0.7, is_stuck=True, **hangs)
async def hang_swallows() -> None:
    until = time.monotonic() + _LONG_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


@kind("hang-to-thread", DEAD, weight=0.3, **hangs)
async def hang_to_thread() -> None:
    """Its task ends. The thread of the default executor does not."""
    await asyncio.to_thread(time.sleep, _FOREVER_SECONDS)


@kind("hang-process", DEAD, process=True, **hangs)
def hang_process() -> None:
    ctypes.PyDLL(None).sleep(_FOREVER_SECONDS)  # holds the interpreter's lock


@kind("hang-process-python", DEAD, process=True, **hangs)
def hang_process_python() -> None:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


@kind("block-loop", DEAD, weight=0.7, **hangs)
async def block_loop() -> None:
    while True:
        pass


@kind("block-loop-for-long", COMPLETED, weight=0.4)
async def block_loop_for_long() -> None:
    time.sleep(1.5)  # noqa: ASYNC251


@kind("block-loop-in-c", DEAD, weight=0.08, errors=TIME_LIMIT, timeout=timedelta(milliseconds=200))
async def block_loop_in_c() -> None:
    """Ends the process."""
    ctypes.CDLL(None).sleep(_FOREVER_SECONDS)


@kind("freeze-thread", DEAD, weight=0.03, freezes=True, **hangs)
def freeze_thread() -> None:
    _freeze()


@kind("freeze-loop", DEAD, weight=0.02, freezes=True, **hangs)
async def freeze_loop() -> None:
    _freeze()


def _freeze() -> None:
    """Keep the interpreter, for years. No Python code runs meanwhile: the kernel has to end the process."""
    re.fullmatch("(a+)+b", "a" * 64)
