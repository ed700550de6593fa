"""A worker made of bare calls: it reads its stream when the test says so, and reports what the test says."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb

_PATIENCE_SECONDS = 10


class StreamingWorker:
    """One stream, open for the length of a block. Entering the block returns once the server welcomed it."""

    def __init__(
        self,
        stub: Any,
        worker_id: str,
        *,
        topics: Iterable[str] = ("mail",),
        capacity: int = 10,
        held: Iterable[pb.Claim] = (),
        run_id: str = "",
    ) -> None:
        self.worker_id = worker_id
        self.welcome: pb.StreamWelcome | None = None
        self._stub = stub
        self._request = pb.StreamJobsRequest(
            topics=topics, worker_id=worker_id, capacity=capacity, held=held, run_id=run_id
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
        """Break the stream, as a worker that dies does."""
        self._call.cancel()

    async def message(self) -> pb.StreamJobsResponse:
        """The next message, whatever it carries."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            message = await self._call.read()
        assert message is not grpc.aio.EOF, f"the stream ended: {await self._call.code()}"
        read: pb.StreamJobsResponse = message
        return read

    async def take(self, count: int) -> list[pb.JobAssignment]:
        """The next jobs, in the order of their arrival; what else came with them is for the next call."""
        while len(self._unread) < count:
            self._unread.extend((await self.message()).assignments)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    async def take_one(self) -> pb.JobAssignment:
        (job,) = await self.take(1)
        return job

    async def stops(self) -> list[pb.Claim]:
        """The next claims that the stream asks to stop."""
        while True:
            message = await self.message()
            self._unread.extend(message.assignments)
            if message.stop:
                return list(message.stop)

    async def end(self) -> list[pb.StreamJobsResponse]:
        """Read to the end of the stream, which the server ends in order. Returns what still came."""
        messages = []
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (message := await self._call.read()) is not grpc.aio.EOF:
                messages.append(message)
            assert await self._call.code() is grpc.StatusCode.OK
        return messages

    async def complete(self, *jobs: pb.JobAssignment, capacity: int = 0) -> None:
        """Report success, and that all of it was taken."""
        results = [pb.Result(job_id=job.job_id, attempt=job.attempt, success=True) for job in jobs]
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
                job_id=job.job_id, attempt=job.attempt, worker_id=self.worker_id, error=error, **fields
            )
        )

    async def beat(self, *jobs: pb.JobAssignment) -> list[pb.Claim]:
        """Beat the jobs. Returns the claims that are lost."""
        request = pb.HeartbeatsRequest(worker_id=self.worker_id, claims=[claim_of(job) for job in jobs])
        return list((await self._stub.Heartbeats(request)).stop)

    async def release(self, *jobs: pb.JobAssignment) -> int:
        request = pb.ReleaseRequest(worker_id=self.worker_id, claims=[claim_of(job) for job in jobs])
        return int((await self._stub.Release(request)).released)


def claim_of(job: pb.JobAssignment) -> pb.Claim:
    return pb.Claim(job_id=job.job_id, attempt=job.attempt)


def wire_duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message
