"""Workers with a topic set each: `python -m benchmarks.set_workers ADDRESS COUNT TOPIC`.

Each worker wants the given topic and a private topic. Workers are streams without handlers: a job
is reported done as soon as it has arrived. Prints a line once all are connected, and ends with its
input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

_CHANNELS = 10
# Channels with the same options would share one connection.
_ALONE = (("grpc.use_local_subchannel_pool", 1),)


async def main(address: str, count: str, topic: str) -> None:
    channels = [grpc.aio.insecure_channel(address, _ALONE) for _ in range(_CHANNELS)]
    stubs = [PulseServiceStub(channel) for channel in channels]
    welcomed = asyncio.Semaphore(0)
    workers = [
        asyncio.create_task(_work(stubs[number % _CHANNELS], number, topic, welcomed))
        for number in range(int(count))
    ]
    for _ in workers:
        await welcomed.acquire()
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    for channel in channels:
        await channel.close()


async def _work(stub: Any, number: int, topic: str, welcomed: asyncio.Semaphore) -> None:
    worker_id = f"worker-{number}"
    request = pb.StreamJobsRequest(topics=[topic, f"own-{number}"], worker_id=worker_id, capacity=10)
    async for message in stub.StreamJobs(request):
        if message.HasField("welcome"):
            welcomed.release()
        if message.assignments:
            results = [
                pb.Result(job_id=job.job_id, attempt=job.attempt, success=True) for job in message.assignments
            ]
            await stub.ReportResults(pb.ReportResultsRequest(worker_id=worker_id, results=results))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(*sys.argv[1:]))
