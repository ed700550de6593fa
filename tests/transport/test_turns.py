"""Long lists in requests and responses are converted in turns: other calls are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import new_id
from pulse_server.base.loops import TURN_ENTRIES, TURN_VIEWS
from pulse_server.doors import boundary
from pulse_server.jobs import messages
from pulse_server.schedules import rpcs
from pulse_server.views import rpcs as views_rpcs
from pulse_server.work import worker_rpcs
from tests.transport.pulse_server_under_test import ServerUnderTest

VIEWS = 3 * TURN_VIEWS
ENTRIES = 3 * TURN_ENTRIES

Call = Callable[[ServerUnderTest], Awaitable[Any]]


class Turns:
    """Counts the calls of a function in each turn of the event loop."""

    def __init__(self) -> None:
        self._turn = 0
        self.calls: dict[int, int] = {}

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[self._turn] = self.calls.get(self._turn, 0) + 1
            return function(*args, **kwargs)

        return call

    async def of(self, call: Awaitable[Any]) -> None:
        counter = asyncio.create_task(self._count())
        try:
            await call
        finally:
            counter.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turn += 1


async def calls_by_turn(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, call: Awaitable[Any]
) -> list[int]:
    turns = Turns()
    monkeypatch.setattr(module, name, turns.counting(getattr(module, name)))
    await turns.of(call)
    return list(turns.calls.values())


async def add_fires(server: ServerUnderTest) -> str:
    """Return a schedule with many jobs."""
    request = pb.CreateScheduleRequest(name="report", topic="mail", cron="0 9 * * *")
    schedule_id = (await server.stub.CreateSchedule(request)).schedule_id
    await server.submit_many(VIEWS)
    await server.table.connection.execute("UPDATE pulse.jobs SET schedule_id = $1", schedule_id)
    return str(schedule_id)


async def add_schedules(server: ServerUnderTest) -> None:
    await server.stub.CreateSchedule(pb.CreateScheduleRequest(name="report", topic="mail", cron="0 9 * * *"))
    await server.table.connection.execute(
        """INSERT INTO pulse.schedules (id, name, topic, payload, max_attempts, kind, cron_expr, next_run_at)
           SELECT gen_random_uuid(), name || number, topic, payload, max_attempts, kind, cron_expr,
                  next_run_at
           FROM pulse.schedules, generate_series(2, $1::int) AS number""",
        VIEWS,
    )


async def add_dead_letters(server: ServerUnderTest) -> None:
    await server.submit_many(VIEWS)
    await server.table.connection.execute(
        """UPDATE pulse.jobs SET status = 'DEAD_LETTERED', queued = false, attempts = 1, finished_at = now(),
                                 ended_as = 'DEAD_LETTERED',
                                 error_group = substr(md5(id::text), 1, 12)"""
    )


async def test_page_of_jobs_is_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.submit_many(VIEWS)
    call = server.stub.ListJobs(pb.ListJobsRequest(limit=VIEWS))
    counted = await calls_by_turn(monkeypatch, messages, "job_view", call)

    assert (sum(counted), max(counted)) == (VIEWS, TURN_VIEWS)


@pytest.mark.parametrize("limit", [0, VIEWS])
async def test_schedules_are_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    await add_schedules(server)
    call = server.stub.ListSchedules(pb.ListSchedulesRequest(limit=limit))
    counted = await calls_by_turn(monkeypatch, rpcs, "schedule_view", call)

    assert (sum(counted), max(counted)) == (VIEWS, TURN_VIEWS)


@pytest.mark.parametrize("limit", [0, VIEWS])
async def test_jobs_of_a_schedule_are_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    schedule_id = await add_fires(server)
    call = server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=schedule_id, limit=limit))
    counted = await calls_by_turn(monkeypatch, messages, "job_view", call)

    assert (sum(counted), max(counted)) == (VIEWS, TURN_VIEWS)


@pytest.mark.parametrize("limit", [0, VIEWS])
async def test_fires_of_a_schedule_are_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    schedule_id = await add_fires(server)
    call = server.stub.ListScheduleFires(pb.ListScheduleFiresRequest(schedule_id=schedule_id, limit=limit))
    counted = await calls_by_turn(monkeypatch, rpcs, "_fire_view", call)

    assert (sum(counted), max(counted)) == (VIEWS, TURN_VIEWS)


async def test_groups_of_dead_letters_are_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_dead_letters(server)
    call = server.stub.ListDeadLetterGroups(pb.ListDeadLetterGroupsRequest(limit=VIEWS))
    counted = await calls_by_turn(monkeypatch, views_rpcs, "job_view", call)

    assert (sum(counted), max(counted)) == (VIEWS, TURN_VIEWS)


async def test_paused_topics_are_converted_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.table.connection.execute(
        "INSERT INTO pulse.barred_topics (topic) SELECT 'topic-' || n FROM generate_series(1, $1::int) AS n",
        VIEWS,
    )
    call = server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    counted = await calls_by_turn(monkeypatch, boundary, "timestamp", call)

    assert max(counted) <= TURN_VIEWS + 1  # and that of everything


async def test_submitted_jobs_are_read_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = await calls_by_turn(monkeypatch, messages, "new_job", server.submit_many(ENTRIES))

    assert (sum(counted), max(counted)) == (ENTRIES, TURN_ENTRIES)


async def test_submitted_jobs_with_much_metadata_are_read_in_shorter_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {f"key{number}": "value" for number in range(49)}
    call = server.submit_many(100, metadata=metadata)
    counted = await calls_by_turn(monkeypatch, messages, "new_job", call)

    assert (sum(counted), max(counted)) == (100, TURN_ENTRIES // 50)


def claims() -> list[pb.Claim]:
    return [pb.Claim(job_id=new_id(), attempt=1) for _ in range(ENTRIES)]


async def hold(server: ServerUnderTest) -> None:
    request = pb.StreamJobsRequest(worker_id="w1", topics=["mail"], capacity=1, held=claims())
    stream = server.stub.StreamJobs(request)
    await stream.read()
    stream.cancel()


WORKERS_CALLS: dict[str, Call] = {
    "heartbeats": lambda server: server.stub.Heartbeats(
        pb.HeartbeatsRequest(worker_id="w1", claims=claims())
    ),
    "release": lambda server: server.stub.Release(pb.ReleaseRequest(worker_id="w1", claims=claims())),
    "results": lambda server: server.stub.ReportResults(
        pb.ReportResultsRequest(
            worker_id="w1",
            results=[pb.Result(job_id=claim.job_id, attempt=1, success=True) for claim in claims()],
        )
    ),
    "unreadable results": lambda server: server.stub.ReportResults(
        pb.ReportResultsRequest(worker_id="w1", results=[pb.Result(job_id="?")] * ENTRIES)
    ),
    "held jobs": hold,
}


@pytest.mark.parametrize("name", WORKERS_CALLS)
async def test_what_workers_send_is_read_in_turns(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    reader = worker_rpcs if "results" in name else messages
    counted = await calls_by_turn(monkeypatch, reader, "parse_id", WORKERS_CALLS[name](server))

    assert (sum(counted), max(counted)) == (ENTRIES, TURN_ENTRIES)
