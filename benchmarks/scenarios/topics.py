"""Many topics: a worker that serves a thousand of them, and a thousand workers with a topic set each.

The drains take 20,000 jobs from queues of 200,000, in one topic and spread over a thousand. In the crowd
every worker wants one topic in common and one of its own, and jobs of the common one are submitted at 300 a
second.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import fill, topics
from benchmarks.repeating import Runs, in_turn, repeated
from benchmarks.stand import Stand
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

QUEUED = 200_000
DRAINED = 20_000
TOPICS = 1_000
WORKERS = 1_000
RATE = 300
SECONDS = 10.0
_CHANNELS = 10
_SHARED = "shared"
# Channels with the same options would share one connection.
_ALONE = (("grpc.use_local_subchannel_pool", 1),)


async def measure(stand: Stand) -> list[Figure]:
    runs: Runs[Drained] = {
        f"drain of {DRAINED:,} of {QUEUED:,} jobs, {count:,} topic{'s' * (count > 1)}": partial(
            _drain, stand, count
        )
        for count in (1, TOPICS)
    }
    drained = await in_turn(stand, runs)
    one, many = [
        Figure("topics", name, "jobs/s", [run.rate for run in outcomes]) for name, outcomes in drained.items()
    ]
    crowds = await repeated(stand, "topics", lambda: _crowd(stand))
    about = f"{stand.sized(WORKERS):,} workers with as many topic sets, {RATE} submits/s"
    return [
        one,
        many.beside(one),
        Figure("topics", f"{about}, p50", "ms", [statistics.median(times) for times in crowds]),
        Figure("topics", f"{about}, p95", "ms", [sorted(times)[len(times) * 19 // 20] for times in crowds]),
    ]


async def _drain(stand: Stand, count: int) -> Drained:
    names = topics(count)
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        await fill(dsn, stand.sized(QUEUED), into=names)
        return await drain(stand, dsn, [server], names, stand.sized(DRAINED), is_all=False)


async def _crowd(stand: Stand) -> list[float]:
    """Return what each submit took, in milliseconds."""
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn) as server,
        _workers(stand, server.address),
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = PulseServiceStub(channel)
        began = time.perf_counter()
        submits = []
        for number in range(int(RATE * SECONDS)):
            submits.append(asyncio.create_task(_submit(stub)))
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        return [taken * 1000 for taken in await asyncio.gather(*submits)]


async def _submit(stub: Any) -> float:
    began = time.perf_counter()
    await stub.SubmitJob(pb.SubmitJobRequest(topic=_SHARED), timeout=60)
    return time.perf_counter() - began


@asynccontextmanager
async def _workers(stand: Stand, address: str) -> AsyncIterator[None]:
    """Streams that take jobs and report them done, each with a topic of its own."""
    channels = [grpc.aio.insecure_channel(address, _ALONE) for _ in range(_CHANNELS)]
    stubs = [PulseServiceStub(channel) for channel in channels]
    welcomed = asyncio.Semaphore(0)
    count = stand.sized(WORKERS)
    workers = [
        asyncio.create_task(_work(stubs[number % _CHANNELS], number, welcomed)) for number in range(count)
    ]
    try:
        for _ in range(count):
            await welcomed.acquire()
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for channel in channels:
            await channel.close()


async def _work(stub: Any, number: int, welcomed: asyncio.Semaphore) -> None:
    worker_id = f"worker-{number}"
    request = pb.StreamJobsRequest(topics=[_SHARED, f"own-{number}"], worker_id=worker_id, capacity=10)
    async for message in stub.StreamJobs(request):
        if message.HasField("welcome"):
            welcomed.release()
        if message.assignments:
            results = [
                pb.Result(job_id=job.job_id, attempt=job.attempt, success=True) for job in message.assignments
            ]
            await stub.ReportResults(pb.ReportResultsRequest(worker_id=worker_id, results=results))
