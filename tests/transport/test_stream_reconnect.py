"""Streams that break, come back or are replaced, and claims that another worker holds by now."""

import asyncio
from datetime import timedelta

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import claim_of

HELD_BY_W1 = "status = 'RUNNING' AND locked_by = 'w1'"


async def test_worker_that_comes_back_keeps_its_capacity_and_what_it_holds(server: ServerUnderTest) -> None:
    await server.submit_many(5)
    async with server.worker(capacity=3) as before:
        first, second = await before.take(2)
        await before.take(1)
    async with server.worker(capacity=3, held=[claim_of(first), claim_of(second)]) as after:
        arrived = await after.take_one()
        assert arrived.job_id not in {first.job_id, second.job_id}
        await server.table.wait_for_count(3, HELD_BY_W1)  # once the third of the old stream is given back
        await server.dispatch_settles()
        assert await server.table.count(HELD_BY_W1) == 3
        await after.complete(first)
        assert (await after.take_one()).job_id not in {first.job_id, second.job_id}
        assert await after.beat(second) == []


@pytest.mark.parametrize("run_id", ["", "run-1"], ids=["no run", "same run"])
async def test_job_that_was_sent_but_never_arrived_comes_again_with_its_attempt(
    server: ServerUnderTest, run_id: str
) -> None:
    await server.submit_many(2)
    async with server.worker(run_id=run_id) as before:
        kept, lost = await before.take(2)
    async with server.worker(held=[claim_of(kept)], run_id=run_id) as after:
        again = await after.take_one()
        assert (again.job_id, again.attempt) == (lost.job_id, 1)
    assert (await server.get(lost.job_id)).history == []


async def test_another_run_of_a_worker_gets_back_nothing_that_may_have_killed_the_one_before(
    server: ServerUnderTest,
) -> None:
    await server.submit()
    async with server.worker(run_id="run-1") as before:
        job = await before.take_one()
    async with server.worker(run_id="run-2") as after:
        next_id = await server.submit()
        assert (await after.take_one()).job_id == next_id
        row = await server.table.row(job.job_id)
        assert (row["status"], row["locked_by"], row["attempts"]) == ("RUNNING", "w1", 1)


async def test_second_stream_of_a_worker_ends_the_first(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as before:
        job = await before.take_one()
        async with server.worker(held=[claim_of(job)]) as after:
            (last,) = await before.end()
            assert last.draining
            next_id = await server.submit()
            assert (await after.take_one()).job_id == next_id
            assert await after.beat(job) == []


async def test_worker_that_vanishes_unread_gives_back_what_was_not_delivered(server: ServerUnderTest) -> None:
    """A megabyte per job: the transport buffers the first few at most, the others wait in the server."""
    await server.submit_many(20, payload=b"x" * 2**20)
    async with server.worker(capacity=20):
        await eventually(lambda: server.table.count(HELD_BY_W1))
    async with server.worker("w2", capacity=20) as other:
        arrived = await other.take(10)
    assert {(job.attempt, job.confirm) for job in arrived} == {(1, False)}


async def test_worker_without_a_place_to_send_to_does_not_disturb_another(server: ServerUnderTest) -> None:
    async with server.worker("w2") as healthy:
        async with server.worker("w1"):
            pass
        ids = [await server.submit() for _ in range(5)]
        assert [job.job_id for job in await healthy.take(5)] == ids


async def test_calls_about_a_lost_claim_do_not_affect_its_holder(server: ServerUnderTest) -> None:
    """The report, heartbeat and release of the former holder must not free a slot of the current one."""
    await server.submit_many(3)
    async with server.worker("zombie", capacity=1) as zombie:
        stale = await zombie.take_one()
        await zombie.fail(stale, after=timedelta(0))
        zombie.leave()
    async with server.worker("w1", capacity=1) as worker:
        job = await worker.take_one()
        while job.job_id != stale.job_id:
            await worker.complete(job)
            job = await worker.take_one()
        await server.submit_many(3)

        assert await zombie.beat(stale) == [claim_of(stale)]
        assert await zombie.release(stale) == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await server.stub.ReportResult(
                pb.ReportResultRequest(job_id=job.job_id, success=True, worker_id="zombie", attempt=1)
            )
        await server.dispatch_settles()
        assert await server.table.count(HELD_BY_W1) == 1

        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
        assert await worker.stops() == [claim_of(job)]


async def test_holding_on_to_a_lost_job_does_not_cost_its_new_holder_a_slot(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker("w1", capacity=1) as first:
        lost = await first.take_one()
        await first.fail(lost, after=timedelta(0))
    async with server.worker("w2", capacity=1) as second:
        moved = await second.take_one()
        assert moved.job_id == job_id
        async with server.worker("w1", capacity=1, held=[claim_of(lost)]) as back:
            await second.complete(moved)
            await server.submit()
            assert (await second.take_one()).job_id != job_id
            assert await back.beat(lost) == [claim_of(lost)]
            next_id = await server.submit()
            assert (await back.take_one()).job_id == next_id


async def test_stream_that_is_opened_while_the_server_drains_is_refused(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        draining = asyncio.create_task(server.app.dispatch.hub.drain(timedelta(seconds=5)))
        (last,) = await worker.end()
        assert last.draining
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with server.worker("w2"):
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await draining
