"""Three servers, workers on each, a stream of submits: a pause stops all of them, a resume starts all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import (
    SECOND,
    ServerUnderTest,
    believe_in_an_open_gate,
    server_under_test,
)
from tests.transport.streaming_worker import StreamingWorker

TOPICS = ["mail", "image"]
CLAIMS_UNDER_WAY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND query LIKE '%pulse:claim_batch%'
      AND pid <> pg_backend_pid() AND query_start <= $1
"""


class Crew:
    """Workers that report each job at once, except for a few that they keep until `finish`."""

    def __init__(self) -> None:
        self.held: list[tuple[StreamingWorker, pb.JobAssignment]] = []
        self.completed = 0

    async def work(self, worker: StreamingWorker) -> None:
        job = await worker.take_one()
        self.held.append((worker, job))
        while True:
            job = await worker.take_one()
            await worker.complete(job)
            self.completed += 1

    async def finish_held(self) -> None:
        for worker, job in self.held:
            await worker.complete(job)


@asynccontextmanager
async def three_servers(dsn: str) -> AsyncIterator[list[ServerUnderTest]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(server_under_test(dsn, dispatch_interval=0.02 * SECOND))
            for _ in range(3)
        ]


@asynccontextmanager
async def background(*work: Any) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def last_claim_is_over(server: ServerUnderTest) -> datetime:
    """Return the time of the database once every claim that began before now has ended."""
    connection = server.table.connection
    now = await connection.fetchval("SELECT clock_timestamp()")

    async def none_left() -> bool:
        return not await connection.fetchval(CLAIMS_UNDER_WAY, now)

    await eventually(none_left)
    later: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return later


@pytest.mark.parametrize(
    ("topic", "hear"),
    [("", True), ("mail", True), ("", False), ("mail", False)],
    ids=["everything", "a topic", "everything, unheard by two", "a topic, unheard by two"],
)
async def test_pause_on_one_server_holds_all_of_them_and_resume_on_another_drains(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, topic: str, hear: bool
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.GATE_INTERVAL", 0.1 * SECOND)
    crew, submitted = Crew(), 0

    async def produce(server: ServerUnderTest) -> None:
        nonlocal submitted
        while True:
            for each in TOPICS:
                stored = await server.submit_many(2, each)
                submitted += len(stored)
            await asyncio.sleep(0.01)  # so that there is less to drain

    async with three_servers(database_dsn) as servers, AsyncExitStack() as stack:
        here, there, elsewhere = servers
        table = here.table
        if not hear:
            for server in (here, elsewhere):
                await believe_in_an_open_gate(server, monkeypatch)
        workers = [
            await stack.enter_async_context(server.worker(f"{number}-{which}", topics=topics, capacity=8))
            for number, server in enumerate(servers)
            for which, topics in (("both", TOPICS), ("mail", ["mail"]))
        ]
        async with background(*map(crew.work, workers)):
            async with background(*map(produce, servers)) as producers:

                async def is_busy() -> bool:
                    return crew.completed > 60 and len(crew.held) == len(workers)

                await eventually(is_busy)
                await there.stub.PauseDispatch(pb.PauseDispatchRequest(reason="test", topic=topic))
                paused_at = await last_claim_is_over(here)

                before = submitted

                async def went_on() -> bool:
                    return submitted > before + 100

                await eventually(went_on)
                await asyncio.gather(*(server.app.dispatch.gate.loop.wait_for_ticks(3) for server in servers))
                for server in servers:
                    state = server.app.dispatch.gate.state
                    knows = topic in state.topics if topic else state.everything is not None
                    assert knows is (hear or server is there)
                await crew.finish_held()
                for _, job in crew.held:
                    assert (await here.get(job.job_id)).status == "COMPLETED"
                held = f"topic = '{topic}'" if topic else "true"
                await table.wait_for_count(0, f"status = 'RUNNING' AND {held}")
                assert not any(task.done() for task in producers)

                resumed_at = await table.connection.fetchval("SELECT clock_timestamp()")
                started = f"started_at > '{paused_at}' AND {held}"
                assert await table.count(f"{started} AND started_at < '{resumed_at}'") == 0
                assert await table.count(f"submitted_at > '{paused_at}' AND status = 'PENDING'") > 0
                if topic:
                    others = f"started_at > '{paused_at}' AND topic = 'image'"
                    assert await table.count(others) > 0, "the other topic is let through"
                await elsewhere.stub.ResumeDispatch(pb.ResumeDispatchRequest(topic=topic))
            # What was being submitted when the producers were stopped may or may not have been.
            await table.wait_for_count(0, "status <> 'COMPLETED'")
