"""Costly calls run beside the event loop, few at a time; further calls are refused with a sentence."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.schedules import service
from pulse_server.views import rpcs
from tests.eventually import PROMPT_SECONDS
from tests.transport.jobs_table import JobsTable
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

SEARCH = pb.ListJobsRequest(error_contains="boom")


def threads_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Return the threads in which the function runs."""
    threads: list[int] = []
    function = getattr(module, name)

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return function(*args)

    monkeypatch.setattr(module, name, noted)
    return threads


async def test_fires_of_a_rare_cron_are_computed_beside_the_event_loop(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threads_of(monkeypatch, service, "upcoming")

    answer = await server.stub.PreviewSchedule(pb.PreviewScheduleRequest(cron="0 0 29 2 MON", count=100))

    assert len(answer.fires) > 1
    assert threads != [threading.get_ident()]


async def test_day_of_statistics_is_computed_beside_the_event_loop(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threads_of(monkeypatch, rpcs, "statistics_view")

    answer = await server.stub.GetStatistics(pb.GetStatisticsRequest(minutes=1440))

    assert len(answer.minutes) == 1440
    assert threads != [threading.get_ident()]


async def test_searches_beyond_the_bound_are_refused_with_a_sentence(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.quotas.COSTLY_CALL_TURN", 0.1 * SECOND)
    async with server_under_test(database_dsn) as server:
        async with held_up(server.table):
            searches = [asyncio.ensure_future(server.stub.ListJobs(SEARCH)) for _ in range(10)]
            refused = [search for search in await first_ended(searches, 8) if search.exception() is not None]
            for search in refused:
                error = search.exception()
                assert isinstance(error, grpc.aio.AioRpcError)
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert "Try again" in (error.details() or "")
            await server.stub.GetSchedulerStatus(pb.GetSchedulerStatusRequest())  # over the same connections
        assert len(refused) == 8, "two of one caller are in progress"
        await asyncio.gather(*searches, return_exceptions=True)
        await server.stub.ListJobs(SEARCH)


async def test_abandoned_search_keeps_its_slot_until_the_database_is_done(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.quotas.COSTLY_CALL_TURN", 0.1 * SECOND)
    async with server_under_test(database_dsn) as server, held_up(server.table):
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
                await server.stub.ListJobs(SEARCH, timeout=0.3)

        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await server.stub.ListJobs(SEARCH)


@asynccontextmanager
async def held_up(table: JobsTable) -> AsyncIterator[None]:
    """Block all statements on the table while the block runs."""
    async with table.connection.transaction():
        await table.connection.execute("LOCK TABLE pulse.jobs IN ACCESS EXCLUSIVE MODE")
        yield


async def first_ended(calls: list[Any], count: int) -> list[Any]:
    """Return the first calls that end, with a result or an error."""
    async with asyncio.timeout(PROMPT_SECONDS):
        pending = set(calls)
        while len(calls) - len(pending) < count:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    return [call for call in calls if call.done()]
