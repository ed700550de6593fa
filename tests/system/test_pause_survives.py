"""A pause survives the server, however that ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.server.pulsed_process import run_pulsed
from tests.system.stage import Stage
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker


@asynccontextmanager
async def calls_to(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield PulseServiceStub(channel)


async def test_pause_survives_a_kill_and_holds_the_next_server_from_its_first_moment(
    stage: Stage, table: JobsTable
) -> None:
    server = await stage.pulsed()
    async with calls_to(server.address) as stub:
        waiting = (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id
        await stub.PauseDispatch(pb.PauseDispatchRequest(reason="maintenance"))
        await stub.PauseDispatch(pb.PauseDispatchRequest(reason="quota", topic="image"))
        before = await stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    server.kill()

    server = await stage.pulsed()
    (status,) = (line for line in server.events if line["event"] == "dispatch_gate")
    assert (status["paused"], status["reason"], status["paused_topics"]) == (True, "maintenance", ["image"])
    async with calls_to(server.address) as stub:
        assert await stub.GetDispatchStatus(pb.GetDispatchStatusRequest()) == before
        async with StreamingWorker(stub, "w1", topics=["mail", "image"]) as worker:
            held = (await stub.SubmitJob(pb.SubmitJobRequest(topic="image"))).job_id
            resumed_at = await table.connection.fetchval("SELECT clock_timestamp()")
            await stub.ResumeDispatch(pb.ResumeDispatchRequest())
            job = await worker.take_one()
            assert job.job_id == waiting
            await worker.complete(job)
    assert (await table.row(waiting))["started_at"] > resumed_at
    assert (await table.row(held))["started_at"] is None, "its topic is paused still"


async def test_pulsed_that_cannot_read_the_pause_exits_with_an_error(stage: Stage, table: JobsTable) -> None:
    await table.connection.execute("DELETE FROM pulse.dispatch_control")

    code, _, errors = await run_pulsed(DB_HOST=stage.dsn, PULSE_GRPC_ADDR="127.0.0.1:0")

    assert code == 1
    last = errors.splitlines()[-1]
    assert last.startswith("pulsed: The row of pulse.dispatch_control is missing, and nothing is handed out")
    assert "INSERT INTO pulse.dispatch_control" in last
    assert "Traceback" not in errors
