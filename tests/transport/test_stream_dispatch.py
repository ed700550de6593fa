"""StreamJobs: which worker receives which jobs, in which order, and never beyond its capacity."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.streaming_worker import wire_duration


async def test_welcome_has_the_lease_and_the_heartbeat_interval(database_dsn: str) -> None:
    async with (
        server_under_test(
            database_dsn, lease_ttl=9 * SECOND, heartbeat_interval=2 * SECOND, watchdog_interval=SECOND
        ) as server,
        server.worker() as worker,
    ):
        assert worker.welcome is not None
        assert worker.welcome.lease_ttl.ToTimedelta() == 9 * SECOND
        assert worker.welcome.heartbeat_interval.ToTimedelta() == 2 * SECOND


async def test_assignment_carries_everything_that_the_handler_needs(server: ServerUnderTest) -> None:
    job_id = await server.submit(
        payload=b"\x00\x01", priority=4, max_attempts=3, metadata={"a": "b"}, idempotency_key="k"
    )
    async with server.worker() as worker:
        assert await worker.take_one() == pb.JobAssignment(
            job_id=job_id,
            topic="mail",
            payload=b"\x00\x01",
            attempt=1,
            run=1,
            priority=4,
            max_attempts=3,
            metadata={"a": "b"},
            idempotency_key="k",
        )


async def test_job_submitted_while_a_worker_waits_arrives_by_wake_up(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        await server.dispatch_settles()
        job_id = await server.submit()
        assert (await worker.take_one()).job_id == job_id


async def test_higher_priority_arrives_first_and_equals_in_order_of_submission(
    server: ServerUnderTest,
) -> None:
    submitted = [
        (priority, await server.submit(priority=priority)) for priority in (0, 5, -5, 5, 0, 2**31 - 1)
    ]
    async with server.worker() as worker:
        arrived = [(job.priority, job.job_id) for job in await worker.take(6)]
    assert arrived == sorted(submitted, key=lambda entry: -entry[0])


async def test_worker_never_holds_more_than_its_capacity(server: ServerUnderTest) -> None:
    ids = await server.submit_many(9)
    held_by_worker = "status = 'RUNNING' AND locked_by = 'w1'"
    arrived: list[str] = []
    async with server.worker(capacity=3) as worker:
        held = await worker.take(3)
        arrived += [job.job_id for job in held]
        await server.dispatch_settles()
        assert await server.table.count(held_by_worker) == 3
        while len(arrived) < 9:
            await worker.complete(held.pop(0))
            held += await worker.take(1)
            arrived.append(held[-1].job_id)
            assert await server.table.count(held_by_worker) == 3
        await worker.complete(*held)
    assert arrived == ids


async def test_capacity_in_a_report_resizes_the_worker(server: ServerUnderTest) -> None:
    await server.submit_many(8)
    held_by_worker = "status = 'RUNNING' AND locked_by = 'w1'"
    async with server.worker(capacity=1) as worker:
        first = await worker.take_one()
        await worker.complete(first, capacity=4)
        held = await worker.take(4)
        await worker.complete(*held[:2], capacity=2)
        await server.dispatch_settles()
        assert await server.table.count(held_by_worker) == 2
        await worker.complete(held[2])
        await worker.take(1)
        assert await server.table.count(held_by_worker) == 2


async def test_delayed_job_arrives_once_it_is_promoted(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        job_id = await server.submit(delay=wire_duration(timedelta(milliseconds=100)))
        job = await worker.take_one()
    assert job.job_id == job_id
    row = await server.table.row(job_id)
    assert row["started_at"] >= row["next_run_at"] >= row["submitted_at"] + timedelta(milliseconds=100)


async def test_worker_gets_only_the_topics_that_it_named(server: ServerUnderTest) -> None:
    ids = {topic: await server.submit(topic) for topic in ("mail", "image", "audio")}
    async with server.worker(topics=["mail", "image", "mail"]) as worker:
        assert {job.job_id for job in await worker.take(2)} == {ids["mail"], ids["image"]}
        await server.dispatch_settles()
    assert (await server.get(ids["audio"])).status == "PENDING"


async def test_priority_counts_across_the_topics_of_a_worker(server: ServerUnderTest) -> None:
    low = await server.submit("mail", priority=1)
    high = await server.submit("image", priority=9)
    async with server.worker(topics=["mail", "image"]) as worker:
        assert [job.job_id for job in await worker.take(2)] == [high, low]


async def test_workers_of_one_topic_get_disjoint_jobs(server: ServerUnderTest) -> None:
    async with server.worker("w1") as first, server.worker("w2") as second, server.worker("w3") as third:
        ids = await server.submit_many(30)
        taken = await asyncio.gather(*(worker.take(10) for worker in (first, second, third)))
    assert sorted(job.job_id for jobs in taken for job in jobs) == sorted(ids)


async def test_few_jobs_spread_over_the_workers(server: ServerUnderTest) -> None:
    async with server.worker("w1") as first, server.worker("w2") as second, server.worker("w3") as third:
        await server.dispatch_settles()  # or a claim may be under way that knows of the first worker only
        await server.submit_many(3)
        await asyncio.gather(*(worker.take(1) for worker in (first, second, third)))


async def test_second_attempt_must_be_confirmed_and_a_first_one_need_not(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        first = await worker.take_one()
        await worker.fail(first, after=timedelta(0))
        second = await worker.take_one()
        assert (first.confirm, second.confirm) == (False, True)
        assert not (await server.table.row(second.job_id))["delivered"]
        await worker.beat(second)
        assert (await server.table.row(second.job_id))["delivered"]


async def test_only_attempt_of_a_job_must_be_confirmed(server: ServerUnderTest) -> None:
    await server.submit(max_attempts=1)
    async with server.worker() as worker:
        assert (await worker.take_one()).confirm


@pytest.mark.parametrize("fields", [{"payload": b"x" * 2**20}, {"metadata": {"k": "v" * 16_000}}])
async def test_heavy_jobs_fit_into_what_a_default_client_receives(
    server: ServerUnderTest, fields: dict[str, Any]
) -> None:
    heavy = {"payload": 8, "metadata": 400}
    (count,) = (heavy[name] for name in fields)
    for _ in range(0, count, 8):
        await server.submit_many(8, **fields)
    async with server.worker(capacity=count) as worker:
        assert len({job.job_id for job in await worker.take(count)}) == count


async def test_job_of_a_silent_worker_is_reaped_and_goes_to_another(database_dsn: str) -> None:
    async with (
        server_under_test(
            database_dsn,
            lease_ttl=0.3 * SECOND,
            heartbeat_interval=0.1 * SECOND,
            watchdog_interval=0.1 * SECOND,
        ) as server,
        server.worker("w1", capacity=1) as silent,
    ):
        job_id = await server.submit()
        job = await silent.take_one()
        assert [claim.job_id for claim in await silent.stops()] == [job_id]
        await server.table.wait_until(job_id, status="RETRYING", last_error="worker lease expired")
        assert await silent.beat(job)
        silent.leave()
        async with server.worker("w2") as other:
            again = await other.take_one()
            # It may have started, or not: the attempt is not counted, and the next one is confirmed.
            assert (again.job_id, again.attempt, again.confirm) == (job_id, 1, True)
