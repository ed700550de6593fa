"""A caller of AwaitJobs, and what completes the jobs that it waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest

UNKNOWN = "00000000-0000-7000-8000-000000000001"


class Awaited:
    def __init__(self, call: Any) -> None:
        self.call = call

    async def add(self, *job_ids: str) -> None:
        await self.call.write(pb.AwaitJobsRequest(add=job_ids))

    async def drop(self, *job_ids: str) -> None:
        await self.call.write(pb.AwaitJobsRequest(drop=job_ids))

    async def next(self) -> pb.AwaitJobsResponse:
        async with asyncio.timeout(30):
            message: pb.AwaitJobsResponse = await self.call.read()
        return message

    async def finished(self, count: int) -> dict[str, pb.JobView]:
        found: dict[str, pb.JobView] = {}
        while len(found) < count:
            found |= {view.job_id: view for view in (await self.next()).finished}
        return found


@asynccontextmanager
async def awaited(server: ServerUnderTest) -> AsyncIterator[Awaited]:
    call = server.stub.AwaitJobs()
    try:
        welcome = await call.read()
        assert welcome == pb.AwaitJobsResponse()
        yield Awaited(call)
    finally:
        call.cancel()


async def complete(server: ServerUnderTest, *, result: bytes = b"1", count: int = 1) -> None:
    async with server.worker() as worker:
        for job in await worker.take(count):
            done = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)
            worker_id = worker.worker_id
            request = pb.ReportResultsRequest(worker_id=worker_id, results=[done], returned={0: result})
            assert not (await server.stub.ReportResults(request)).refused


async def settled(server: ServerUnderTest) -> None:
    """Return once the server has looked at all that was added: its looks are over, and it waits for news."""
    registry = server.app.work.awaited_jobs
    await eventually(
        lambda: registry._by_job and not any(one._something_new.is_set() for one in registry._waiters)
    )
