"""How pulsed stops: nothing undelivered keeps its lease, and calls under way are answered."""

import asyncio
import signal
from collections.abc import AsyncIterator

import asyncpg
import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import eventually
from tests.server.pulsed_process import caller_of, pulsed
from tests.server.statement_waits import statement_waits
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker, claim_of
from tests.transport.test_limits_of_connections import SMALL_WINDOW


@pytest.fixture
async def table(database_dsn: str) -> AsyncIterator[JobsTable]:
    connection = await asyncpg.connect(database_dsn)
    yield JobsTable(connection)
    await connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_it_in_order(database_dsn: str, number: signal.Signals) -> None:
    async with pulsed(database_dsn) as server:
        server.signal(number)
        assert await server.ended() == 0
        assert [line["event"] for line in server.events[-2:]] == ["draining", "stopped"]


async def test_workers_are_notified_and_keep_their_jobs(database_dsn: str, table: JobsTable) -> None:
    async with pulsed(database_dsn) as server, caller_of(server) as stub:
        async with StreamingWorker(stub, "w1", capacity=1) as worker:
            await stub.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail")] * 2))
            job = await worker.take_one()
            server.signal()
            (last,) = await worker.end()
            assert last.draining
        assert await server.ended() == 0
    row = await table.row(job.job_id)
    assert (row["status"], row["locked_by"], row["attempts"]) == ("RUNNING", "w1", 1)
    assert await table.count("status = 'PENDING' AND queued") == 1


async def test_jobs_that_were_not_delivered_go_back_with_their_attempts(
    database_dsn: str, table: JobsTable
) -> None:
    """The worker does not read; with a megabyte per job, what is leased to it waits in the server."""
    large = pb.SubmitJobRequest(topic="mail", payload=b"x" * 2**20)
    async with (
        pulsed(database_dsn, PULSE_DRAIN_TIMEOUT="100ms") as server,
        grpc.aio.insecure_channel(server.address, SMALL_WINDOW) as channel,
    ):
        stub = PulseServiceStub(channel)
        for _ in range(20):
            await stub.SubmitJob(large)
        async with StreamingWorker(stub, "w1", capacity=20):
            # The first message has two, and the connection takes less than that.
            await eventually(lambda: _are_leased(table, 4))
            server.signal()
            assert await server.ended() == 0
    delivered = await table.count("status = 'RUNNING' AND attempts = 1")
    given_back = await table.count("status = 'RETRYING' AND attempts = 0 AND queued")
    untouched = await table.count("status = 'PENDING' AND attempts = 0 AND queued")
    assert delivered + given_back + untouched == 20
    assert given_back >= 1
    released = [line["jobs"] for line in server.events if line["event"] == "released_undelivered"]
    assert sum(released) == given_back


async def _are_leased(table: JobsTable, count: int) -> bool:
    return await table.count("status = 'RUNNING'") >= count


async def test_call_under_way_is_answered(database_dsn: str, table: JobsTable) -> None:
    async with pulsed(database_dsn) as server, caller_of(server) as stub:
        async with table.connection.transaction():
            await table.connection.execute("LOCK TABLE pulse.jobs IN SHARE MODE")
            submitting = asyncio.ensure_future(stub.SubmitJob(pb.SubmitJobRequest(topic="mail")))
            await statement_waits(table, "insert_one")
            server.signal()
            await server.wait_for("draining")
        answer = await submitting
        assert await server.ended() == 0
    assert (await table.row(answer.job_id))["status"] == "PENDING"


async def test_second_signal_does_not_wait_for_anything(database_dsn: str, table: JobsTable) -> None:
    async with pulsed(database_dsn) as server, caller_of(server) as stub, table.connection.transaction():
        await table.connection.execute("LOCK TABLE pulse.jobs IN SHARE MODE")
        submitting = asyncio.ensure_future(stub.SubmitJob(pb.SubmitJobRequest(topic="mail")))
        await statement_waits(table, "insert_one")
        server.signal()
        await server.wait_for("draining")
        server.signal()
        assert await server.ended() == 1
        with pytest.raises(grpc.aio.AioRpcError):
            await submitting


async def test_second_replica_goes_on_with_the_jobs_and_the_worker(database_dsn: str) -> None:
    async with (
        pulsed(database_dsn) as leaving,
        pulsed(database_dsn) as staying,
        caller_of(leaving) as first,
        caller_of(staying) as second,
    ):
        async with StreamingWorker(first, "w1", capacity=1) as worker:
            for _ in range(2):
                await first.SubmitJob(pb.SubmitJobRequest(topic="mail"))
            job = await worker.take_one()
            leaving.signal()
            await worker.end()
        assert await leaving.ended() == 0
        async with StreamingWorker(second, "w1", capacity=2, held=[claim_of(job)]) as worker:
            other = await worker.take_one()
            assert other.job_id != job.job_id
            assert await worker.beat(job, other) == []
            await worker.complete(job, other)


async def test_server_that_is_killed_leaves_nothing_that_another_cannot_finish(
    database_dsn: str, table: JobsTable
) -> None:
    async with pulsed(database_dsn) as killed, caller_of(killed) as stub:
        await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))
        async with StreamingWorker(stub, "w1", capacity=1) as worker:
            job = await worker.take_one()
            killed.signal(signal.SIGKILL)
            assert await killed.ended() == -signal.SIGKILL
    async with (
        pulsed(database_dsn) as other,
        caller_of(other) as stub,
        StreamingWorker(stub, "w1", capacity=1, held=[claim_of(job)]) as worker,
    ):
        await worker.complete(job)
    assert (await table.row(job.job_id))["status"] == "COMPLETED"
