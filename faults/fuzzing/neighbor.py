"""A well-formed caller beside the bad ones."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any
from uuid import uuid4

import grpc

from faults.fuzzing.sending import PATIENCE_SECONDS
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.transport.authorized import CallerWith
from tests.transport.streaming_worker import StreamingWorker

# How long it waits for its job before it assumes that dispatch is paused.
_PAUSED_SECONDS = 2


class Neighbor:
    """Every call must succeed. Each method returns the complaints, normally none."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._stub: Any = CallerWith(channel, metadata) if metadata else PulseServiceStub(channel)
        self._next = cycle((self._submit, self._look_up, self._ask_for_status, self._preview))
        self._name = f"well-formed-{uuid4()}"  # unique
        self._job_id = ""
        self.calls = 0

    async def call(self) -> list[str]:
        """Make the next of a few ordinary calls."""
        self.calls += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await next(self._next)()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            return [f"a well-formed caller was not served: {_described(error)}"]

    async def run_a_job(self) -> list[str]:
        """Have a job run from its submit to its report. Bad callers may pause dispatch and cancel jobs, as
        operators may; then it resumes, and submits another."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await self._ran(f"{self._name}-{uuid4()}"):
                    await self._stub.ResumeDispatch(pb.ResumeDispatchRequest())
                return []
        except (grpc.aio.AioRpcError, TimeoutError, AssertionError) as error:
            return [f"no job of a well-formed caller was run: {_described(error)}"]

    async def _ran(self, topic: str) -> bool:
        """Return whether the only job of its own topic was run."""
        job_id = (await self._stub.SubmitJob(pb.SubmitJobRequest(topic=topic))).job_id
        async with StreamingWorker(self._stub, topic, topics=[topic], capacity=1) as worker:
            try:
                async with asyncio.timeout(_PAUSED_SECONDS):
                    taken = await worker.take_one()
            except TimeoutError:
                return False
            fence = {"job_id": taken.job_id, "attempt": taken.attempt, "run": taken.run}
            result = pb.Result(**fence, success=True)
            await self._stub.ReportResults(pb.ReportResultsRequest(worker_id=topic, results=[result]))
        job = (await self._stub.GetJob(pb.GetJobRequest(job_id=job_id))).job
        return bool(job.status == "COMPLETED")

    async def _submit(self) -> list[str]:
        answer = await self._stub.SubmitJob(
            pb.SubmitJobRequest(topic=self._name, payload=b"{}", max_attempts=3)
        )
        self._job_id = answer.job_id
        return [] if len(answer.job_id) == 36 and not answer.duplicate else [f"its job was taken as {answer}"]

    async def _look_up(self) -> list[str]:
        try:
            job = (await self._stub.GetJob(pb.GetJobRequest(job_id=self._job_id))).job
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return []  # another caller has canceled and deleted it, as any caller may
            raise
        is_it = (job.job_id, job.topic, job.payload) == (self._job_id, self._name, b"{}")
        return [] if is_it else [f"its job came back as {job}"]

    async def _ask_for_status(self) -> list[str]:
        await self._stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        return []

    async def _preview(self) -> list[str]:
        answer = await self._stub.PreviewSchedule(pb.PreviewScheduleRequest(cron="0 9 * * 1-5", count=3))
        return [] if len(answer.fires) == 3 else [f"its preview has {len(answer.fires)} fires"]


def _described(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__} {error}"
