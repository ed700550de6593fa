"""Handlers as they should be, beside the others; and those that are snoozed, retried or canceled."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta

import pulse
from faults.handlers.kinds import LIMIT, TIME_LIMIT, kind
from faults.stepped_work import run_of
from pulse import JobStatus

COMPLETED, DEAD, CANCELED = JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED
_FOREVER_SECONDS = 3600.0
_SHORT = timedelta(milliseconds=50)


@kind("plain", COMPLETED, weight=25)
async def plain() -> None:
    await asyncio.sleep(random.uniform(0.0, 0.05))


@kind("plain-at-once", COMPLETED, weight=25)
async def plain_at_once() -> None: ...


@kind("plain-thread", COMPLETED, weight=25)
def plain_thread() -> None:
    time.sleep(random.uniform(0.0, 0.05))


@kind("plain-process", COMPLETED, weight=8, process=True)
def plain_process() -> None:
    time.sleep(random.uniform(0.0, 0.05))


@kind("plain-limited", COMPLETED, weight=8, timeout=timedelta(seconds=30))
def plain_limited() -> None:
    time.sleep(0.01)


@kind("snooze", COMPLETED, weight=2, errors="not yet")
async def snooze(ctx: pulse.Context) -> None:
    if run_of(ctx) < 3:
        raise pulse.Snooze(timedelta(milliseconds=200), "not yet")


@kind("retry-once", COMPLETED, weight=2, errors="the first attempt fails")
def retry_once(ctx: pulse.Context) -> None:
    if ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")


# ---------------------------------------------------------------- canceled by an operator


@kind("cancel-async", CANCELED, weight=1)
async def cancel_async() -> None:
    await asyncio.sleep(_FOREVER_SECONDS)


@kind("cancel-thread", CANCELED, weight=1)
def cancel_thread() -> None:
    while True:
        time.sleep(0.01)


@kind("cancel-process", CANCELED, weight=1, process=True)
def cancel_process() -> None:
    while True:
        time.sleep(0.01)


@kind("cancel-at-the-end", CANCELED, COMPLETED, weight=2)
def cancel_at_the_end() -> None:
    time.sleep(random.uniform(0.0, 0.02))


# ---------------------------------------------------------------- the limit comes with the end


@kind("limit-at-the-end-async", COMPLETED, DEAD, errors=TIME_LIMIT, weight=1, timeout=_SHORT)
async def limit_at_the_end_async() -> None:
    await asyncio.sleep(0.05 + random.uniform(-0.004, 0.004))


@kind("limit-at-the-end-thread", COMPLETED, DEAD, errors=TIME_LIMIT, weight=3, timeout=_SHORT)
def limit_at_the_end_thread() -> None:
    until = time.monotonic() + 0.05 + random.uniform(-0.004, 0.004)
    while time.monotonic() < until:
        pass


@kind("limit-at-the-end-process", COMPLETED, DEAD, errors=TIME_LIMIT, weight=1, timeout=LIMIT, process=True)
def limit_at_the_end_process() -> None:
    time.sleep(0.3 + random.uniform(-0.01, 0.01))
