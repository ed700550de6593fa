"""A caller with absurd deadlines: heartbeats for invented jobs and its own, submits and reports.

It runs its own jobs as any worker may: each is started once a heartbeat for it was answered in time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import grpc

from faults.history import COMPLETED, History
from faults.topics import HASTE
from pulse.ids import uuid7
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

_BEAT_SECONDS = (0.001, 0.006)
_SUBMIT_SECONDS = _REPORT_SECONDS = 0.001
# The short deadlines are the fault, not the load: the calls must not keep a server busy.
_PAUSE_SECONDS = (0.0, 0.05)
_MADE_UP = (1, 5, 50)
_MAX_ATTEMPTS = 20
_CAPACITY = 3
_WORK_BEATS = 15
_HURRIED_REPORTS = 20
_PATIENT_SECONDS = 2.0
_AGAIN_SECONDS = 0.2


@dataclass
class Haste:
    """The server to call, the caller's name, and the duration."""

    history: History
    address: str
    name: str
    random: Random
    seconds: float
    numbers: count[int] = field(default_factory=lambda: count(1))


async def call_in_haste(haste: Haste) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(haste.address, options=options) as channel:
        caller = _Caller(haste, PulseServiceStub(channel))
        with suppress(TimeoutError):
            async with asyncio.timeout(haste.seconds):
                await asyncio.gather(caller.beat_what_it_made_up(), caller.submit(), caller.work())
        await caller.report_patiently()


class _Caller:
    def __init__(self, haste: Haste, stub: Any) -> None:
        self._haste = haste
        self._random = haste.random
        self._stub = stub
        self._done: list[pb.Result] = []

    # ------------------------------------------------------------ what affects no other caller

    async def beat_what_it_made_up(self) -> None:
        while True:
            claims = [
                pb.Claim(job_id=uuid7(), attempt=1, run=1) for _ in range(self._random.choice(_MADE_UP))
            ]
            await self._beat(claims)
            await asyncio.sleep(self._random.uniform(*_PAUSE_SECONDS))

    async def submit(self) -> None:
        while True:
            key, job_id = f"{self._haste.name}-{next(self._haste.numbers)}", uuid7()
            operation = self._haste.history.operation(
                "submit", key=key, topic=HASTE, expect="complete", job_id=job_id
            )
            payload = f'{{"key": "{key}"}}'.encode()
            request = pb.SubmitJobRequest(
                topic=HASTE, payload=payload, job_id=job_id, max_attempts=_MAX_ATTEMPTS
            )
            try:
                await self._stub.SubmitJob(request, timeout=_SUBMIT_SECONDS * self._random.randint(1, 30))
            except grpc.aio.AioRpcError as error:
                operation.unknown(str(error.code()))
            else:
                operation.done(job_id=job_id)
            await asyncio.sleep(0.1)

    # ------------------------------------------------------------ jobs of its own

    async def work(self) -> None:
        request = pb.StreamJobsRequest(topics=[HASTE], worker_id=self._haste.name, capacity=_CAPACITY)
        async with asyncio.TaskGroup() as jobs:
            while True:
                with suppress(grpc.aio.AioRpcError):
                    async for message in self._stub.StreamJobs(request):
                        for job in message.assignments:
                            jobs.create_task(self._run(job))
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _run(self, job: pb.JobAssignment) -> None:
        claim = pb.Claim(job_id=job.job_id, attempt=job.attempt, run=job.run)
        while (holds := await self._beat([claim])) is None:  # noqa: ASYNC110
            await asyncio.sleep(self._random.uniform(*_PAUSE_SECONDS))
        if not holds:
            return
        fence = {"job_id": job.job_id, "attempt": job.attempt, "run": job.run}
        facts = fence | {"worker": self._haste.name}
        self._haste.history.write("started", **facts, topic=job.topic)
        for _ in range(_WORK_BEATS):
            await self._beat([claim])
            await asyncio.sleep(self._random.uniform(*_PAUSE_SECONDS))
        self._haste.history.write("ended", **facts, outcome=COMPLETED)
        result = pb.Result(**fence, success=True)
        for _ in range(_HURRIED_REPORTS):
            if await self._report([result], _REPORT_SECONDS):
                return
        self._done.append(result)

    async def report_patiently(self) -> None:
        if self._done:
            await self._report(self._done, _PATIENT_SECONDS)

    async def _beat(self, claims: list[pb.Claim]) -> bool | None:
        """Return whether the claims hold; None without an answer in time."""
        request = pb.HeartbeatsRequest(worker_id=self._haste.name, claims=claims)
        try:
            answer = await self._stub.Heartbeats(request, timeout=self._random.uniform(*_BEAT_SECONDS))
        except grpc.aio.AioRpcError:
            return None
        return not answer.stop

    async def _report(self, results: list[pb.Result], seconds: float) -> bool:
        request = pb.ReportResultsRequest(worker_id=self._haste.name, results=results)
        try:
            await self._stub.ReportResults(request, timeout=seconds)
        except grpc.aio.AioRpcError:
            return False
        return True
