"""WatchJobs over real gRPC: every transition, in order, here and from another server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.metrics import Metrics
from pulse_server.doors import boundary
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import eventually
from tests.fakes.time_machines import lapse_all_leases
from tests.transport.authorized import USERS, answer, caller
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.test_two_replicas import both_listen
from tests.transport.watching import Watching, wait_for_watcher


async def test_life_of_a_job_is_seen_from_its_submit_to_its_end(server: ServerUnderTest) -> None:
    async with Watching(server.stub) as watching, server.worker("w1") as worker:
        job_id = await server.submit(max_attempts=2)
        await worker.fail(await worker.take_one(), "boom\nTraceback", after=0.05 * SECOND)
        await worker.complete(await worker.take_one())
        seen = await watching.see(5)

    assert [(change.status, change.attempt) for change in seen] == [
        ("PENDING", 0),
        ("RUNNING", 1),
        ("RETRYING", 1),
        ("RUNNING", 2),
        ("COMPLETED", 2),
    ]
    assert {(change.job_id, change.topic) for change in seen} == {(job_id, "mail")}
    assert [change.worker_id for change in seen] == ["", "w1", "w1", "w1", "w1"]
    assert [change.error for change in seen] == ["", "", "boom", "", ""]
    moments = [change.at.ToNanoseconds() for change in seen]
    assert moments == sorted(moments)


async def test_cancel_redrive_release_and_dead_letter_are_seen(server: ServerUnderTest) -> None:
    async with Watching(server.stub) as watching:
        job_id = await server.submit()
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="not now"))
        await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id, attempts=1))
        async with server.worker() as worker:
            await worker.release(await worker.take_one())
            await worker.fail(await worker.take_one(), discard=True)
            assert await watching.statuses(7) == [
                ("PENDING", 0),
                ("CANCELED", 0),
                ("PENDING", 0),
                ("RUNNING", 1),
                ("RETRYING", 1),
                ("RUNNING", 1),
                ("DEAD_LETTERED", 1),
            ]


async def test_reaped_job_is_seen(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker("frozen") as worker:
        await worker.take_one()
        async with Watching(server.stub) as watching:
            await lapse_all_leases(server.table.connection)
            server.app.work.lease_keeping.watchdog._steady_since = -1e9
            server.app.work.lease_keeping.watchdog.loop.nudge()
            (change,) = await watching.see(1)

    assert (change.job_id, change.status, change.worker_id) == (job_id, "RETRYING", "frozen")
    assert change.error == "worker lease expired"


async def test_bulk_actions_are_seen_job_by_job(server: ServerUnderTest) -> None:
    ids = await server.submit_many(5)
    async with Watching(server.stub) as watching:
        await server.stub.CancelJobs(pb.CancelJobsRequest(filter=pb.JobFilter(topic="mail"), reason="stop"))
        seen = await watching.see(5)
    assert {change.job_id for change in seen} == set(ids)
    assert {(change.status, change.error) for change in seen} == {("CANCELED", "stop")}


async def test_filters_show_only_what_was_asked_for(server: ServerUnderTest) -> None:
    wanted = await server.submit("sms")
    async with (
        Watching(server.stub, topics=["mail"]) as by_topic,
        Watching(server.stub, job_ids=[wanted]) as by_id,
    ):
        await server.submit("sms")
        mail = await server.submit("mail")
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=wanted))
        assert [change.job_id for change in await by_topic.see(1)] == [mail]
        assert [change.job_id for change in await by_id.see(1)] == [wanted]


async def test_transitions_are_not_built_without_a_watcher(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[Wakeup] = []
    announce = server.app._line.announce
    monkeypatch.setattr(server.app._line, "announce", lambda news: (announced.append(news), announce(news)))
    monkeypatch.setattr("pulse_server.wakeups.watchers.transition", lambda *_, **__: pytest.fail("made up"))
    async with server.worker() as worker:
        await server.submit_many(20)
        await worker.complete(*await worker.take(10))
        await worker.complete(*await worker.take(10))

    assert not [news for news in announced if news.transitions or news.watching]


async def test_watcher_that_does_not_read_delays_no_other_and_gets_the_missed_count(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.watchers.WATCHER_BACKLOG", 10)
    async with Watching(server.stub) as watching:
        (watcher,) = server.app.watchers._watchers
        await server.submit_many(500)
        assert len(watcher._unread) <= 10
        seen = await watching.see(10)
        await eventually(lambda: not watcher._unread)
        last = await server.submit()
        (change,) = await watching.see(1)

    assert len(seen) == 10
    assert watching.missed == 490
    assert change.job_id == last


async def test_stop_of_the_server_ends_the_watch_in_order(database_dsn: str) -> None:
    async with (
        server_under_test(database_dsn, drain_timeout=30 * SECOND) as server,
        Watching(server.stub) as watching,
    ):
        stopping = asyncio.create_task(server.app.stop())
        assert await watching.end() is grpc.StatusCode.OK
        async with asyncio.timeout(25):  # and not after the thirty seconds that calls may take
            await stopping


async def test_watching_needs_a_role_that_may_read(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        for role, expected in {
            "viewer": grpc.StatusCode.OK,
            "operator": grpc.StatusCode.OK,
            "worker": grpc.StatusCode.PERMISSION_DENIED,
            "producer": grpc.StatusCode.PERMISSION_DENIED,
            "unknown": grpc.StatusCode.UNAUTHENTICATED,
        }.items():
            code, _ = await answer(caller(server.channel, role), "WatchJobs")
            assert code is expected, role


# --- two servers


@pytest.fixture
async def replicas(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.05 * SECOND)
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        await both_listen(a)
        yield a, b


async def test_what_another_server_does_is_seen_in_order(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with Watching(here.stub) as watching, there.worker() as worker:
        await wait_for_watcher(there)
        ids = await there.submit_many(30)
        for _ in range(3):
            await worker.complete(*await worker.take(10))
        seen = await watching.see(90)

    assert watching.missed == 0
    for job_id in ids:
        own = [change.status for change in seen if change.job_id == job_id]
        assert own == ["PENDING", "RUNNING", "COMPLETED"]


async def test_life_that_is_spread_over_two_servers_is_seen_in_order(
    replicas: tuple[ServerUnderTest, ServerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitted there, claimed here, reported there: the transitions of this server arrive first."""
    here, there = replicas
    monkeypatch.setattr(
        "pulse_server.wakeups.watchers.WATCH_GATHERING", SECOND
    )  # however busy this machine is
    async with Watching(here.stub) as watching, here.worker("w1") as worker:
        await wait_for_watcher(there)
        ids = []
        for _ in range(10):
            ids.append(await there.submit())
            job = await worker.take_one()
            result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)
            await there.stub.ReportResults(pb.ReportResultsRequest(worker_id="w1", results=[result]))
        seen = await watching.see(30)

    for job_id in ids:
        own = [change.status for change in seen if change.job_id == job_id]
        assert own == ["PENDING", "RUNNING", "COMPLETED"]


async def test_other_server_stops_publishing_without_a_watcher(
    replicas: tuple[ServerUnderTest, ServerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas
    monkeypatch.setattr("pulse_server.wakeups.watchers.WATCH_INTEREST", 0.1 * SECOND)
    async with Watching(here.stub):
        await wait_for_watcher(there)
    await eventually(lambda: not there.app.watchers.is_watched)


async def test_watcher_that_disconnects_during_a_write_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write(_request: object, _context: object) -> None:
        raise grpc.aio.InternalError("the message could not be handed over")

    watch = boundary.returning_failures("WatchJobs", write, Metrics(), is_stream=True)
    await boundary._aborting(watch)(cast("Any", None), cast("Any", None))
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
