"""A worker made of plain calls: the test controls when it reads its stream and what it reports."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PROMPT_SECONDS


class StreamingWorker:
    """One stream, open while the block runs. The block starts once the server has sent the welcome."""

    def __init__(
        self,
        stub: Any,
        worker_id: str,
        *,
        topics: Iterable[str] = ("mail",),
        capacity: int = 10,
        concurrency: int = 0,
        held: Iterable[pb.Claim] = (),
        run_id: str = "",
        idle: bool = False,
        can_stop: bool = False,
    ) -> None:
        self.worker_id = worker_id
        self.welcome: pb.StreamWelcome | None = None
        self._stub = stub
        self._request = pb.StreamJobsRequest(
            topics=topics,
            worker_id=worker_id,
            capacity=capacity,
            concurrency=concurrency,
            held=held,
            run_id=run_id,
            idle=idle,
            can_stop=can_stop,
        )
        self._unread: list[pb.JobAssignment] = []

    async def __aenter__(self) -> "StreamingWorker":
        self._call = self._stub.StreamJobs(self._request)
        first = await self.message()
        assert first.HasField("welcome"), "the first message is the welcome"
        self.welcome = first.welcome
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Break the stream, as the crash of a worker does."""
        self._call.cancel()

    async def message(self) -> pb.StreamJobsResponse:
        """Return the next message of any kind."""
        async with asyncio.timeout(PROMPT_SECONDS):
            message = await self._call.read()
        assert message is not grpc.aio.EOF, f"the stream ended: {await self._call.code()}"
        read: pb.StreamJobsResponse = message
        return read

    async def take(self, count: int) -> list[pb.JobAssignment]:
        """Return the next jobs, in order of arrival; further jobs are left for the next call."""
        while len(self._unread) < count:
            self._unread.extend((await self.message()).assignments)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    async def take_one(self) -> pb.JobAssignment:
        (job,) = await self.take(1)
        return job

    async def stops(self) -> list[pb.Claim]:
        """Return the next claims that the server stops."""
        while True:
            message = await self.message()
            self._unread.extend(message.assignments)
            if message.stop:
                return list(message.stop)

    async def end(self) -> list[pb.StreamJobsResponse]:
        """Read to the end of the stream, which must be OK. Returns the remaining jobs."""
        messages = []
        async with asyncio.timeout(PROMPT_SECONDS):
            while (message := await self._call.read()) is not grpc.aio.EOF:
                messages.append(message)
            assert await self._call.code() is grpc.StatusCode.OK
        return messages

    async def complete(self, *jobs: pb.JobAssignment, capacity: int = 0) -> None:
        """Report success, and assert that no report was refused."""
        results = [
            pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True) for job in jobs
        ]
        request = pb.ReportResultsRequest(worker_id=self.worker_id, results=results, capacity=capacity)
        assert not (await self._stub.ReportResults(request)).refused

    async def fail(
        self, job: pb.JobAssignment, error: str = "no luck", *, after: timedelta | None = None, **fields: Any
    ) -> None:
        """Report a failure with ReportResult."""
        if after is not None:
            fields["retry_after"] = wire_duration(after)
        await self._stub.ReportResult(
            pb.ReportResultRequest(
                job_id=job.job_id,
                attempt=job.attempt,
                run=job.run,
                worker_id=self.worker_id,
                error=error,
                **fields,
            )
        )

    async def suspend(self, job: pb.JobAssignment, delay: Duration, step: str = "sleep") -> None:
        """Report that the handler sleeps."""
        suspension = pb.Suspension(step=step, delay=delay)
        result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, suspension=suspension)
        request = pb.ReportResultsRequest(worker_id=self.worker_id, results=[result])
        assert not (await self._stub.ReportResults(request)).refused

    async def beat(self, *jobs: pb.JobAssignment) -> list[pb.Claim]:
        """Send heartbeats for the jobs. Returns the lost claims."""
        request = pb.HeartbeatsRequest(worker_id=self.worker_id, claims=[claim_of(job) for job in jobs])
        return list((await self._stub.Heartbeats(request)).stop)

    async def release(self, *jobs: pb.JobAssignment) -> int:
        request = pb.ReleaseRequest(worker_id=self.worker_id, claims=[claim_of(job) for job in jobs])
        return int((await self._stub.Release(request)).released)


def claim_of(job: pb.JobAssignment) -> pb.Claim:
    return pb.Claim(job_id=job.job_id, attempt=job.attempt, run=job.run)


def wire_duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message
