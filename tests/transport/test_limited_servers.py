"""Two servers on one database, and topics with limits. ADR-0064

Their ticks are a minute apart: only wake-ups and timers can be prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from pulse.topic_settings import Rate
from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.connections import Database
from pulse_server.topics.store import PostgresLimitRepo
from tests.eventually import eventually
from tests.transport.limited_servers import AUDIT, TOPIC, Cluster, Shift
from tests.transport.pulse_server_under_test import SECOND, server_under_test
from tests.transport.streaming_worker import StreamingWorker
from tests.transport.test_two_replicas import both_listen


@pytest.fixture
async def cluster(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.05 * SECOND)
    database = Database(database_dsn)
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        await both_listen(a)
        yield Cluster((a, b), PostgresLimitRepo(database))
    await database.close()


async def connect(
    cluster: Cluster, stack: AsyncExitStack, per_server: int, **request: int
) -> list[StreamingWorker]:
    return [
        await stack.enter_async_context(server.worker(f"w{place}-{number}", topics=[TOPIC], **request))
        for place, server in enumerate(cluster.servers)
        for number in range(per_server)
    ]


async def test_limit_holds_across_servers_and_is_used(cluster: Cluster) -> None:
    here, there = cluster.servers
    await here.table.connection.execute(AUDIT)
    await cluster.limit_topic(running=3)
    shift = Shift(60)
    async with AsyncExitStack() as stack:
        workers = await connect(cluster, stack, per_server=2, capacity=2)
        await asyncio.gather(here.submit_many(30, TOPIC), there.submit_many(30, TOPIC))
        await shift.work(workers, seconds=0.002)
    audited = await here.table.connection.fetchval("SELECT max(running) FROM public.audit")
    assert audited == 3
    assert shift.most <= 3, "by the workers"
    assert await cluster.limits.sweep() == (0, 0)


async def test_place_that_is_freed_here_lets_a_worker_there_start(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=1)
    async with (
        here.worker("busy", topics=[TOPIC], capacity=1) as busy,
        there.worker("waits", topics=[TOPIC]) as waits,
    ):
        await here.submit_many(2, TOPIC)
        first, second = asyncio.create_task(busy.take_one()), asyncio.create_task(waits.take_one())
        done, _ = await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        assert await cluster.running() == 1
        if first in done:
            busy.leave()
            await busy.complete(first.result())
            await second
        else:
            waits.leave()
            await waits.complete(second.result())
            await first


async def test_place_of_a_canceled_run_goes_to_a_worker_there(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=1)
    async with here.worker("busy", topics=[TOPIC], capacity=1) as busy:
        await here.submit(TOPIC)
        job = await busy.take_one()
        async with there.worker("waits", topics=[TOPIC]) as waits:
            await here.submit(TOPIC)
            busy.leave()
            await eventually(lambda: not here.app.dispatch.roster.sessions)
            await here.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
            await waits.take_one()
            assert await cluster.running() == 1


async def test_topics_of_a_pool_share_its_places(cluster: Cluster) -> None:
    here, there = cluster.servers
    for topic in ("train", "infer"):
        await cluster.limit_topic(topic, running=1, pool="gpu")
    async with here.worker("w1", topics=["train"]) as train, there.worker("w2", topics=["infer"]) as infer:
        await here.submit("train")
        job = await train.take_one()
        waiting = await there.submit("infer")
        assert await cluster.running("infer") == 0
        await train.complete(job)
        assert (await infer.take_one()).job_id == waiting


async def test_rate_holds_across_servers_and_the_next_starts_need_no_wake_up(cluster: Cluster) -> None:
    await cluster.limit_topic(rate=Rate(4, timedelta(milliseconds=500)))
    shift = Shift(12)
    async with AsyncExitStack() as stack:
        workers = await connect(cluster, stack, per_server=1, capacity=10)
        await cluster.servers[0].submit_many(12, TOPIC)
        await shift.work(workers, seconds=0)
    rows = await cluster.servers[0].table.connection.fetch(
        "SELECT started_at FROM pulse.all_jobs WHERE topic = $1 ORDER BY started_at", TOPIC
    )
    starts = [row["started_at"] for row in rows]
    assert all(
        later - earlier >= timedelta(milliseconds=500)
        for earlier, later in zip(starts, starts[4:], strict=False)
    )


async def test_jobs_of_a_rate_that_would_only_wait_in_a_worker_take_no_places(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=4, rate=Rate(1000, SECOND))
    async with here.worker("ahead", topics=[TOPIC], capacity=50, concurrency=1) as ahead:
        await here.submit_many(10, TOPIC)
        await ahead.take_one()
        async with there.worker("other", topics=[TOPIC], capacity=3) as other:
            assert len(await other.take(3)) == 3
            assert await cluster.running() == 4


async def test_place_of_a_job_that_waited_in_a_worker_goes_to_an_idle_one_there(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=4)
    async with here.worker("ahead", topics=[TOPIC], capacity=50, concurrency=1) as ahead:
        await here.submit_many(20, TOPIC)
        jobs = await ahead.take(4)
        async with there.worker("idle", topics=[TOPIC], capacity=3) as idle:
            await eventually(lambda: cluster.leaves_room_for(3))
            for job in jobs[:3]:
                await ahead.complete(job)
            assert len(await idle.take(3)) == 3
            assert await cluster.running() == 4


@pytest.mark.parametrize("entries", [{"running": 40}, {"per_lane": 1}], ids=["limit", "keys"])
async def test_limits_are_exact_while_jobs_wait_in_workers(cluster: Cluster, entries: dict[str, int]) -> None:
    """With failures, a worker that dies and a pause. Counted at the end of each statement that leases."""
    here, there = cluster.servers
    await here.table.connection.execute(AUDIT)
    await cluster.limit_topic(**entries)
    shift = Shift(270, has_failures=True)
    async with AsyncExitStack() as stack:
        dies = await stack.enter_async_context(here.worker("dies", topics=[TOPIC], capacity=3))
        for lane in range(30):
            await (here, there)[lane % 2].submit_many(10, TOPIC, lane=f"lane-{lane}")
        await dies.take(3)
        dies.leave()
        workers = await connect(cluster, stack, per_server=2, capacity=30, concurrency=2)
        work = asyncio.create_task(shift.work(workers, seconds=0.005))
        await eventually(lambda: len(shift.done) > 50)
        await here.stub.PauseDispatch(pb.PauseDispatchRequest(topic=TOPIC))
        await there.stub.ResumeDispatch(pb.ResumeDispatchRequest(topic=TOPIC))
        await work
    query = "SELECT max(running) AS running, max(in_a_lane) AS in_a_lane FROM public.audit"
    audited = await here.table.connection.fetchrow(query)
    assert audited is not None
    assert audited["running"] > 3 + 4 * 2, "jobs waited in workers"
    assert audited["running"] <= entries.get("running", 300)
    assert audited["in_a_lane"] <= entries.get("per_lane", 10)
    assert await cluster.limits.sweep() == (0, 0)


async def test_lanes_of_one_topic_are_served_by_workers_of_both_servers(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(per_lane=1)
    for lane in ("a", "a", "b", "b"):
        await here.submit(TOPIC, lane=lane)
    async with (
        here.worker("w1", topics=[TOPIC], capacity=1) as one,
        there.worker("w2", topics=[TOPIC], capacity=1) as other,
    ):
        first = await asyncio.gather(one.take_one(), other.take_one())
        lanes = [(await here.table.row(job.job_id))["lane"] for job in first]
        assert sorted(lanes) == ["a", "b"]
        await one.complete(first[0])
        again = await one.take_one()
        assert (await here.table.row(again.job_id))["lane"] == lanes[0]


async def test_paused_topic_starts_nothing_and_its_limit_holds_after_the_resume(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=2)
    await here.stub.PauseDispatch(pb.PauseDispatchRequest(topic=TOPIC))
    await there.app.dispatch.gate.refresh()
    async with here.worker("w1", topics=[TOPIC]) as worker:
        await here.submit_many(5, TOPIC)
        await here.dispatch_settles()
        assert await cluster.running() == 0
        await there.stub.ResumeDispatch(pb.ResumeDispatchRequest(topic=TOPIC))
        await worker.take(2)
        await here.dispatch_settles()
        assert await cluster.running() == 2
        assert here.app.dispatch.gate.state.limited.keys() == {TOPIC}


async def test_policy_that_is_removed_while_jobs_run_limits_nothing_from_then_on(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=1, per_lane=1)
    async with here.worker("w1", topics=[TOPIC]) as worker:
        for lane in "abcd":
            await here.submit(TOPIC, lane=lane)
        first = await worker.take_one()
        await cluster.retire()
        rest = await worker.take(3)
        await worker.complete(first, *rest)
        await there.app.topics.limit_sweep.tick()
        await eventually(lambda: not here.app.dispatch.gate.state.limited)
        job_id = await here.submit(TOPIC)
        job = await worker.take_one()
        assert job.job_id == job_id
        assert (await here.table.row(job_id))["attempts"] == 1
        await worker.complete(job)
    row = await here.table.connection.fetchrow("SELECT count(*) AS rows FROM pulse.pools")
    assert row is not None
    assert row["rows"] == 0


async def test_limit_that_is_raised_counts_at_once(cluster: Cluster) -> None:
    here, there = cluster.servers
    await cluster.limit_topic(running=1)
    async with there.worker("w1", topics=[TOPIC]) as worker:
        await here.submit_many(3, TOPIC)
        await worker.take_one()
        await cluster.limit_topic(running=3)
        await worker.take(2)


async def test_plain_topics_beside_a_limited_one_are_served(cluster: Cluster) -> None:
    here, _ = cluster.servers
    await cluster.limit_topic(running=1)
    async with here.worker("w1", topics=[TOPIC, "mail"], capacity=5) as worker:
        await here.submit_many(3, TOPIC)
        await here.submit_many(3, "mail")
        jobs = await worker.take(4)
        assert sorted(job.topic for job in jobs) == ["mail"] * 3 + [TOPIC]
