"""AwaitJobs: each job is sent once it is finished, whatever was heard of it, and by whichever server."""

from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.connections import Connections
from pulse_server.database.statements import statements
from pulse_server.wakeups.watchers import Wakeup
from pulse_server.work import awaiting
from pulse_server.work.awaiting import AwaitedJobs
from tests.eventually import eventually
from tests.transport.awaiting_caller import UNKNOWN, awaited, complete, settled
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test


async def test_job_is_sent_when_it_completes(server: ServerUnderTest) -> None:
    job_id = await server.submit(payload=b"[1]")
    async with awaited(server) as waits:
        await waits.add(job_id)
        await complete(server)
        (view,) = (await waits.next()).finished
    assert (view.job_id, view.status, view.result, view.payload) == (job_id, "COMPLETED", b"1", b"")


async def test_job_that_has_finished_before_is_sent_at_once(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    await complete(server)
    async with awaited(server) as waits:
        await waits.add(job_id)
        assert list(await waits.finished(1)) == [job_id]


async def test_dead_letter_and_canceled_job_are_sent_with_history_and_reason(server: ServerUnderTest) -> None:
    dead = await server.submit(max_attempts=1)
    async with awaited(server) as waits:
        await waits.add(dead)
        async with server.worker() as worker:
            await worker.fail(await worker.take_one())
        (view,) = (await waits.next()).finished
        assert (view.status, [past.outcome for past in view.history]) == ("DEAD_LETTERED", ["failed"])
        canceled = await server.submit("other")
        await waits.add(canceled)
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=canceled, reason="not needed"))
        (view,) = (await waits.next()).finished
        assert (view.status, view.last_error) == ("CANCELED", "not needed")


async def test_job_that_does_not_exist_is_missing(server: ServerUnderTest) -> None:
    async with awaited(server) as waits:
        await waits.add(UNKNOWN)
        assert list((await waits.next()).missing) == [UNKNOWN]


async def test_job_that_was_deleted_before_it_was_read_is_missing(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is not heard of, as when a transition is lost, and retention is quicker than the next look."""
    monkeypatch.setattr(server.app.work.awaited_jobs, "offer", lambda *_: None)
    monkeypatch.setattr(awaiting, "FIRST_LOOKS", (3600 * SECOND,))
    monkeypatch.setattr(awaiting, "REPAIR_PAUSE", 3600 * SECOND)  # the line may come up only now
    job_id = await server.submit()
    async with awaited(server) as waits:
        await waits.add(job_id)
        await settled(server)
        await complete(server)
        await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))
        look_now(server)
        assert list((await waits.next()).missing) == [job_id]


def look_now(server: ServerUnderTest) -> None:
    for waiter in server.app.work.awaited_jobs._waiters:
        waiter._look_due = 0.0
    server.app.work.awaited_jobs.loop.nudge()


@pytest.mark.parametrize("why", ["a look", "missed", "the line was down"])
async def test_end_that_was_not_heard_of_is_found_by_a_read(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    offer = server.app.work.awaited_jobs.offer
    monkeypatch.setattr(server.app.work.awaited_jobs, "offer", lambda *_: None)
    monkeypatch.setattr(awaiting, "FIRST_LOOKS", (3600 * SECOND,))
    monkeypatch.setattr(awaiting, "REPAIR_PAUSE", 0 * SECOND)
    job_id = await server.submit()
    async with awaited(server) as waits:
        await waits.add(job_id)
        await settled(server)
        await complete(server)
        if why == "a look":
            look_now(server)
        elif why == "missed":
            offer((), 7)
        else:
            server.app.work.awaited_jobs._on_wakeup(Wakeup(claims_unknown=True))
        assert list(await waits.finished(1)) == [job_id]


async def test_retried_job_is_waited_for_on(server: ServerUnderTest) -> None:
    """A transition says that it is finished, but by the time of the read it is not any more."""
    job_id = await server.submit()
    async with awaited(server) as waits:
        await waits.add(job_id)
        await settled(server)
        (waiter,) = server.app.work.awaited_jobs._waiters
        waiter.has_finished(job_id)  # late news of an end that was undone
        await eventually(lambda: not waiter._finished)
        await complete(server)
        assert list(await waits.finished(1)) == [job_id]


async def test_end_that_is_heard_of_during_a_read_is_read_again(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read began before the end, so it does not see it."""
    monkeypatch.setattr(awaiting, "FIRST_LOOKS", (3600 * SECOND,))
    read = AwaitedJobs.finished_jobs
    job_id = await server.submit()

    async def complete_meanwhile(awaited: AwaitedJobs, *args: Any) -> Any:
        found = await read(awaited, *args)
        monkeypatch.undo()
        await complete(server)
        return found

    async with awaited(server) as waits:
        await waits.add(job_id)
        await settled(server)
        monkeypatch.setattr(AwaitedJobs, "finished_jobs", complete_meanwhile)
        (waiter,) = server.app.work.awaited_jobs._waiters
        waiter.has_finished(job_id)  # of an attempt that was retried
        assert list(await waits.finished(1)) == [job_id]


async def test_dropped_job_is_not_sent(server: ServerUnderTest) -> None:
    first, second = await server.submit_many(2)
    async with awaited(server) as waits:
        await waits.add(first, second)
        await waits.drop(first)
        await settled(server)
        await complete(server, count=2)
        assert list(await waits.finished(1)) == [second]
        assert not server.app.work.awaited_jobs._by_job


async def test_each_of_several_callers_gets_the_job_and_nothing_is_left(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with awaited(server) as first, awaited(server) as second:
        await first.add(job_id, job_id)
        await second.add(job_id)
        await complete(server)
        assert list(await first.finished(1)) == list(await second.finished(1)) == [job_id]
    registry = server.app.work.awaited_jobs
    await eventually(lambda: not registry._waiters)
    assert (registry._by_job, registry._awaited.total, server.app.watchers._followers) == ({}, 0, set())


async def test_caller_that_sends_no_more_reads_to_the_end(server: ServerUnderTest) -> None:
    job_ids = await server.submit_many(3)
    async with awaited(server) as waits:
        await waits.add(*job_ids)
        await waits.call.done_writing()
        await complete(server, count=3)
        assert sorted(await waits.finished(3)) == sorted(job_ids)
        assert await waits.next() is grpc.aio.EOF


async def test_job_of_another_server_is_sent(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as one, server_under_test(database_dsn) as other:
        first, second = await one.submit_many(2)
        async with awaited(one) as waits:
            await waits.add(first)
            await complete(other, count=2)
            assert list(await waits.finished(1)) == [first]
            await waits.add(second)
            assert list(await waits.finished(1)) == [second]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements by which awaited jobs are read. No look is made without a reason."""
    monkeypatch.setattr(awaiting, "FIRST_LOOKS", (3600 * SECOND,))
    names: list[str] = []
    fetch = Connections.fetch

    async def recorded(pool: Connections, name: str, *args: Any, **options: Any) -> Any:
        if name in statements("work/awaiting.sql"):
            names.append(name)
        return await fetch(pool, name, *args, **options)

    monkeypatch.setattr(Connections, "fetch", recorded)
    return names


async def test_wait_for_a_job_that_runs_here_makes_one_read(
    server: ServerUnderTest, reads: list[str]
) -> None:
    async with server.worker() as worker:
        job_id = await server.submit()
        job = await worker.take_one()
        async with awaited(server) as waits:
            await waits.add(job_id)
            await settled(server)
            await worker.complete(job)
            assert list(await waits.finished(1)) == [job_id]
    assert reads == ["finished_jobs"]


async def test_look_at_a_job_that_waits_is_one_read(server: ServerUnderTest, reads: list[str]) -> None:
    job_id = await server.submit()
    async with awaited(server) as waits:
        await waits.add(job_id)
        await settled(server)
    assert reads == ["finished_jobs"]
