"""A real server in the process of the test, on its own database, with shortcuts for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.streams import batch_bounds
from pulse_server.app import App, running_app
from pulse_server.settings import Settings
from tests.fakes.dispatch import FakeSwitches
from tests.transport.jobs_table import ConnectionOnDemand, JobsTable
from tests.transport.streaming_worker import StreamingWorker

SECOND = timedelta(seconds=1)


def settings_of_test(**overrides: Any) -> Settings:
    """Settings with a free port, a long tick, so that only a wake-up can deliver a job, and a short drain."""
    chosen: dict[str, Any] = {
        "grpc_address": "127.0.0.1:0",
        "database_url": None,
        "dispatch_interval": 60 * SECOND,
        "drain_timeout": 0.2 * SECOND,
    }
    return Settings(**(chosen | overrides))


@dataclass(frozen=True)
class ServerUnderTest:
    app: App
    address: str
    channel: grpc.aio.Channel
    stub: Any
    table: JobsTable

    async def submit(self, topic: str = "mail", payload: bytes = b"", **fields: Any) -> str:
        """Submit one job. Returns its id."""
        request = pb.SubmitJobRequest(topic=topic, payload=payload, **fields)
        return str((await self.stub.SubmitJob(request)).job_id)

    async def submit_many(self, count: int, topic: str = "mail", **fields: Any) -> list[str]:
        """Submit `count` jobs, in one call if they fit into a message. Returns their ids, in order."""
        job = pb.SubmitJobRequest(topic=topic, **fields)
        ids = []
        for begin, end in batch_bounds([job.ByteSize()] * count, count, 3 * 1024 * 1024):
            answer = await self.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=[job] * (end - begin)))
            ids += [result.job_id for result in answer.results]
        return ids

    async def get(self, job_id: str) -> pb.JobView:
        view: pb.JobView = (await self.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job
        return view

    def worker(self, worker_id: str = "w1", **request: Any) -> StreamingWorker:
        return StreamingWorker(self.stub, worker_id, **request)

    async def dispatch_settles(self) -> None:
        """Return once the hub has looked at every group that was there when this was called.

        It serves those with more room before it, and of those with as much the older ones: when one with a
        single place that came last has its job, the others had their turn.
        """
        async with self.worker("the-barrier", topics=["the-barrier"], capacity=1) as barrier:
            await self.submit("the-barrier")
            (job,) = await barrier.take(1)
            await barrier.complete(job)


async def believe_in_an_open_gate(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop updates of the pause switch: the server continues as if it had not changed."""
    monkeypatch.setattr(server.app.dispatch.gate, "_repo", FakeSwitches())
    server.app.dispatch.gate.loop.nudge()
    await server.app.dispatch.gate.loop.wait_for_ticks(1)  # the look that may have been under way is over


@asynccontextmanager
async def server_under_test(dsn: str, **settings: Any) -> AsyncIterator[ServerUnderTest]:
    """Run a server on the database while the block runs."""
    async with (
        running_app(settings_of_test(**settings), dsn) as (app, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        connection = ConnectionOnDemand(dsn)
        try:
            stub = PulseServiceStub(channel)
            yield ServerUnderTest(app, address, channel, stub, JobsTable(connection))
        finally:
            await connection.close()
