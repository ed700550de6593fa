"""The database goes away under a running pulsed, and comes back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.schema import apply_migrations
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres
from tests.server.pulsed_process import Pulsed, caller_of, pulsed
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker

# A lease is lost after two seconds of silence, so that an outage that outlasts it is short. A machine that
# stands still for 1.4 s or less is not noticed by the watchdog, and must not cost a lease.
SHORT_LEASE = {
    "PULSE_LEASE_TTL": "2s",
    "PULSE_HEARTBEAT_INTERVAL": "200ms",
    "PULSE_WATCHDOG_INTERVAL": "200ms",
    "PULSE_DISPATCH_INTERVAL": "100ms",
}
# A call that the server leaves hanging ends with DEADLINE_EXCEEDED after this, which is not UNAVAILABLE.
BOUND_SECONDS = 15
NO_JOB = "0190f3a0-0000-7000-8000-00000000dead"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutagePostgres]:
    """The server is made once for the module."""
    database = OutagePostgres(tmp_path_factory.mktemp("outage") / "cluster")
    database.start()
    asyncio.run(apply_migrations(database.dsn))
    yield database
    database.close()


@asynccontextmanager
async def table_of(dsn: str) -> AsyncIterator[JobsTable]:
    connection = await asyncpg.connect(dsn)
    try:
        yield JobsTable(connection)
    finally:
        await connection.close()


async def answer_of(call: Any) -> grpc.StatusCode:
    """The status with which the call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class Beating:
    """Beats a worker's job again and again, whatever the answers are, as a worker does."""

    def __init__(self, stub: Any, worker: StreamingWorker, job: pb.JobAssignment) -> None:
        self._stub = stub
        claims = [pb.Claim(job_id=job.job_id, attempt=job.attempt, run=job.run)]
        self._beat = pb.HeartbeatsRequest(worker_id=worker.worker_id, claims=claims)
        self.was_lost = False
        self._taken = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> "Beating":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def is_taken_again(self) -> None:
        """Return once a beat that was sent after this call began was answered."""
        async with asyncio.timeout(BOUND_SECONDS), self._changed:
            target = self._taken + 2
            await self._changed.wait_for(lambda: self._taken >= target)

    async def _run(self) -> None:
        while True:
            call = self._stub.Heartbeats(self._beat, timeout=BOUND_SECONDS)
            status = await answer_of(call)
            assert status in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
            if status is grpc.StatusCode.OK:
                self.was_lost |= bool((await call).stop)
                async with self._changed:
                    self._taken += 1
                    self._changed.notify_all()
            await asyncio.sleep(0.1)


async def submit(stub: Any, topic: str = "mail") -> str:
    """Submit a job, again and again while the server has no database."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            call = stub.SubmitJob(pb.SubmitJobRequest(topic=topic), timeout=BOUND_SECONDS)
            status = await answer_of(call)
            if status is grpc.StatusCode.OK:
                return str((await call).job_id)
            assert status is grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(0.05)


async def a_silent_worker_loses_its_job(server: Pulsed, stub: Any) -> None:
    """The watchdog is at work: it takes a job away from a worker that says nothing."""
    async with StreamingWorker(stub, "silent", topics=["silent"], capacity=1) as silent:
        job_id = await submit(stub, "silent")
        await silent.take_one()
        assert (await server.wait_for("lease_expired"))["job_id"] == job_id
    await stub.CancelJob(pb.CancelJobRequest(job_id=job_id))


async def test_stopped_database_is_unavailable_and_work_goes_on_when_it_is_back(
    database: OutagePostgres,
) -> None:
    async with (
        pulsed(database.dsn, **SHORT_LEASE) as server,
        caller_of(server) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
    ):
        await submit(stub)
        held = await worker.take_one()
        async with Beating(stub, worker, held) as beating:
            await a_silent_worker_loses_its_job(server, stub)
            database.stop()
            for call in (
                stub.SubmitJob(pb.SubmitJobRequest(topic="mail"), timeout=BOUND_SECONDS),
                stub.GetJob(pb.GetJobRequest(job_id=held.job_id), timeout=BOUND_SECONDS),
                stub.CancelJob(pb.CancelJobRequest(job_id=held.job_id), timeout=BOUND_SECONDS),
            ):
                assert await answer_of(call) is grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(2.1)  # the point of this test: the outage outlasts the lease
            database.start()
            await beating.is_taken_again()

            job_id = await submit(stub)
            job = await worker.take_one()
            assert job.job_id == job_id, "the stream that was there before is fed"
            await worker.complete(job)
            await a_silent_worker_loses_its_job(server, stub)
            assert not beating.was_lost, "no lease of a worker that beats was taken"
        await worker.complete(held)
        async with table_of(database.dsn) as table:
            row = await table.row(held.job_id)
        assert (row["status"], row["attempts"], row["last_error"]) == ("COMPLETED", 1, None)


@pytest.mark.skipif(not CAN_FREEZE, reason="finds the server's processes in /proc")
async def test_frozen_database_is_unavailable_in_bounded_time_and_work_goes_on_when_it_thaws(
    database: OutagePostgres,
) -> None:
    async with (
        pulsed(database.dsn, **SHORT_LEASE) as server,
        caller_of(server) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
    ):
        await submit(stub)
        held = await worker.take_one()
        async with Beating(stub, worker, held) as beating:
            database.freeze()
            calls = [
                stub.SubmitJob(pb.SubmitJobRequest(topic="frozen"), timeout=BOUND_SECONDS),
                stub.SubmitJobs(
                    pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="frozen")]), timeout=BOUND_SECONDS
                ),
                # Of no job: a statement that waits in the frozen server's socket may be run when it thaws.
                stub.ReportResult(
                    pb.ReportResultRequest(job_id=NO_JOB, worker_id="w1", attempt=1, success=True),
                    timeout=BOUND_SECONDS,
                ),
            ]
            answers = await asyncio.gather(*(answer_of(call) for call in calls))
            assert set(answers) == {grpc.StatusCode.UNAVAILABLE}
            database.thaw()
            await beating.is_taken_again()
            job_id = await submit(stub)
            job = await worker.take_one()
            assert job.job_id == job_id
            await worker.complete(job)
            assert not beating.was_lost
        await worker.complete(held)


async def test_connections_that_are_cut_are_replaced(database_dsn: str) -> None:
    async with (
        pulsed(database_dsn) as server,
        caller_of(server) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
        table_of(database_dsn) as table,
    ):
        await submit(stub)
        held = await worker.take_one()
        await table.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'pulsed%'"
        )
        job_id = await submit(stub)
        assert (await worker.take_one()).job_id == job_id
        await worker.complete(held)
