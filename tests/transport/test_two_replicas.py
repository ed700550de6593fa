"""Two servers on one database. Their ticks are a minute apart: only a wake-up can be prompt."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.jobs.reports import Arrival
from tests.eventually import PROMPT_SECONDS
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.streaming_worker import claim_of

LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pulsed wakeups'
      AND (query LIKE '%pulse:listening%' OR query LIKE '%pg_notify%')
"""


@pytest.fixture
async def replicas(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    """Both run and listen for each other's wake-ups."""
    monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", 0.05 * SECOND)
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        await both_listen(a)
        yield a, b


async def both_listen(server: ServerUnderTest, but_not: Collection[int] = ()) -> set[int]:
    """Return the backends of the two wake-up lines once both listen on this database."""
    async with asyncio.timeout(PROMPT_SECONDS):
        while True:
            pids = {row["pid"] for row in await server.table.connection.fetch(LISTENERS)}
            if len(pids) == 2 and pids.isdisjoint(but_not):
                return pids
            await asyncio.sleep(0.01)


async def test_job_submitted_here_reaches_a_worker_there(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker() as worker:
        await there.dispatch_settles()
        job_id = await here.submit()
        assert (await worker.take_one()).job_id == job_id


async def test_job_of_a_transaction_that_one_server_hears_of_reaches_a_worker_of_the_other(
    replicas: tuple[ServerUnderTest, ServerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server takes no arrivals: only an announcement can wake it."""
    _, there = replicas
    monkeypatch.setattr(there.app.work.arrivals, "_queries", InMemoryArrivals())
    await there.app.work.arrivals.loop.wait_for_ticks(2)
    async with there.worker() as worker:
        await there.dispatch_settles()
        job_id = await there.table.connection.fetchval("SELECT job_id FROM pulse.enqueue('mail', '')")
        assert (await worker.take_one()).job_id == str(job_id)


class InMemoryArrivals:
    """Arrivals of a database that has none."""

    async def take_arrivals(self, _most: int) -> list[Arrival]:
        return []

    async def record_defaults(self, *_: int) -> None: ...


async def test_job_submitted_here_goes_there_while_the_worker_here_is_full(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with here.worker("full", capacity=1) as full:
        await here.submit()
        await full.take_one()
        async with there.worker("free") as free:
            await there.dispatch_settles()
            job_id = await here.submit()
            assert (await free.take_one()).job_id == job_id


async def test_cancel_here_stops_the_job_of_a_worker_there(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker() as worker:
        await there.submit()
        job = await worker.take_one()
        await here.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
        assert await worker.stops() == [claim_of(job)]


@pytest.mark.parametrize("count", [251, 5000])
async def test_cancel_of_many_jobs_here_stops_each_of_them_there(
    replicas: tuple[ServerUnderTest, ServerUnderTest], count: int
) -> None:
    here, there = replicas
    for _ in range(0, count, 1000):
        await there.submit_many(min(count, 1000))
    async with there.worker(capacity=count) as worker:
        held = await worker.take(count)
        token = ""
        while True:
            request = pb.CancelJobsRequest(filter=pb.JobFilter(topic="mail"), page_token=token)
            if not (token := (await here.stub.CancelJobs(request)).next_page_token):
                break
        stopped: set[str] = set()
        while len(stopped) < count:
            stopped.update(claim.job_id for claim in await worker.stops())
        assert stopped == {job.job_id for job in held}


async def test_claims_that_ended_while_a_server_was_cut_off_are_stopped_once_it_listens_again(
    replicas: tuple[ServerUnderTest, ServerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas
    async with there.worker() as worker:
        ids = await there.submit_many(2)
        held = await worker.take(2)
        monkeypatch.setattr("pulse_server.wakeups.line.LISTEN_RETRY", 0.3 * SECOND)
        for pid in await both_listen(here):
            await here.table.connection.execute("SELECT pg_terminate_backend($1)", pid)
        # Nothing is announced: as if the other server had done it while this one did not listen.
        await here.table.connection.execute(
            "UPDATE pulse.jobs SET status = 'CANCELED', locked_by = NULL, lease_until = NULL, "
            "queued = false, ended_as = 'CANCELED', finished_at = now() WHERE id = $1::uuid",
            ids[0],
        )
        (ended,) = [job for job in held if job.job_id == ids[0]]
        assert await worker.stops() == [claim_of(ended)]


async def test_retry_and_release_here_wake_a_worker_there(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    job_id = await here.submit()
    await here.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    async with there.worker() as worker:
        await there.dispatch_settles()
        await here.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))
        job = await worker.take_one()
        await there.app.dispatch.reconciler.reconcile()
        release = pb.ReleaseRequest(worker_id="w1", claims=[claim_of(job)])
        assert (await here.stub.Release(release)).released == 1
        await there.app.dispatch.reconciler.reconcile()
        assert (await worker.take_one()).job_id == job_id


async def test_report_through_the_other_replica_counts_and_frees_the_slot(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker(capacity=1) as worker:
        await there.submit_many(2)
        job = await worker.take_one()
        await there.app.dispatch.reconciler.reconcile()
        report = pb.ReportResultRequest(job_id=job.job_id, success=True, worker_id="w1", attempt=1)
        await here.stub.ReportResult(report)
        assert (await there.get(job.job_id)).status == "COMPLETED"
        await there.app.dispatch.reconciler.reconcile()
        assert (await worker.take_one()).job_id != job.job_id


async def test_heartbeat_through_the_other_replica_extends_the_lease(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker() as worker:
        await there.submit()
        job = await worker.take_one()
        before = (await here.table.row(job.job_id))["lease_until"]
        beats = pb.HeartbeatsRequest(worker_id="w1", claims=[claim_of(job)])
        assert not (await here.stub.Heartbeats(beats)).stop
        assert (await here.table.row(job.job_id))["lease_until"] > before


async def test_line_whose_connection_was_cut_is_mended_and_looks_for_what_it_missed(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with there.worker() as worker:
        await there.dispatch_settles()
        cut = await both_listen(here)
        for pid in cut:
            await here.table.connection.execute("SELECT pg_terminate_backend($1)", pid)
        first = await here.submit()
        assert (await worker.take_one()).job_id == first
        await both_listen(here, but_not=cut)
        second = await here.submit()
        assert (await worker.take_one()).job_id == second


async def test_workers_of_two_replicas_get_disjoint_jobs(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    async with here.worker("w1", capacity=50) as first, there.worker("w2", capacity=50) as second:
        ids = await here.submit_many(100)
        there.app.dispatch.roster.wake(None)  # a worker with room here keeps the wake-up from the others
        taken = await asyncio.gather(first.take(50), second.take(50))
    assert sorted(job.job_id for jobs in taken for job in jobs) == sorted(ids)
