"""Handlers that exit."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys

from faults.handlers.kinds import kind
from pulse import JobStatus

DEAD = JobStatus.DEAD_LETTERED


@kind("exit-async", DEAD, errors="SystemExit: 3")
async def exit_async() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


@kind("exit-at-once", DEAD, errors="SystemExit: 3")
async def exit_at_once() -> None:
    sys.exit(3)


@kind("exit-thread", DEAD, errors="SystemExit: 3")
def exit_thread() -> None:
    sys.exit(3)


@kind("exit-process", DEAD, errors="SystemExit: 3", process=True)
def exit_process() -> None:
    sys.exit(3)


@kind("interrupt-async", DEAD, errors="KeyboardInterrupt")
async def interrupt_async() -> None:
    raise KeyboardInterrupt


@kind("interrupt-thread", DEAD, errors="KeyboardInterrupt")
def interrupt_thread() -> None:
    raise KeyboardInterrupt


@kind("gone-process", DEAD, errors="exited with code 4", process=True)
def gone_process() -> None:
    os._exit(4)


@kind("killed-process", DEAD, errors="killed by SIGKILL", process=True)
def killed_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@kind("segfault-process", DEAD, errors="killed by SIGSEGV", process=True)
def segfault_process() -> None:
    ctypes.string_at(0)
