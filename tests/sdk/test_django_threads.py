"""The thread in which an async handler of a Django project queries. A slot keeps its own."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
from asgiref.sync import sync_to_async

from pulse.django import clients
from pulse.handlers.registry import JobCall
from tests.eventually import PATIENCE_SECONDS

CALL = cast(JobCall, None)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    idle: list[Any] = []
    monkeypatch.setattr(clients, "_idle", idle)
    # A slow check: the next job of the slot begins before it has ended, if that is possible.
    monkeypatch.setattr(clients, "refresh_connections", lambda: time.sleep(0.02))
    return idle


async def test_next_job_of_a_slot_takes_its_thread_though_the_last_check_is_slow() -> None:
    threads: list[int] = []

    async def handle() -> None:
        threads.append(await sync_to_async(threading.get_ident)())

    for _ in range(3):
        await asyncio.create_task(clients.with_fresh_connections(CALL, handle))
    assert len(set(threads)) == 1


async def test_canceled_job_does_not_wait_for_its_query(idle: list[Any]) -> None:
    began, go = threading.Event(), threading.Event()

    def query() -> None:
        began.set()
        go.wait()

    job = asyncio.create_task(clients.with_fresh_connections(CALL, sync_to_async(query)))
    await asyncio.to_thread(began.wait)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert idle == [], "its thread is busy"
    go.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not idle:  # noqa: ASYNC110 - the thread rings no bell
            await asyncio.sleep(0.001)
