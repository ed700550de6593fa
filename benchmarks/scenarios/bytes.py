"""Large payloads: the peak memory of pulsed, and how long small submits of another topic take.

33 callers send 3 MiB at a time; and a worker drains a queue of 1,000 jobs of 900 KiB.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from benchmarks.draining import drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC
from benchmarks.processes import Server
from benchmarks.scenarios.payload import sized_payload
from benchmarks.stand import Stand
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

CALLERS = 33
ROUNDS = 30
PAYLOAD_BYTES = 900 * 1024
JOBS_PER_CALL = 3
QUEUE = 1000
_GAP_SECONDS = 0.02
_QUIET_SECONDS = 2
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))


class Flood(NamedTuple):
    most_megabytes: float
    quiet_ms: float
    flooded_ms: float
    outcomes: Counter[str]


async def measure(stand: Stand) -> list[Figure]:
    floods = [await _flood(stand) for _ in range(stand.repeats)]
    queues = [await _queue(stand) for _ in range(stand.repeats)]
    outcomes = ", ".join(f"{count} {name}" for name, count in floods[-1].outcomes.most_common())
    what = f"{CALLERS} callers × 3 MiB"
    return [
        Figure("bytes", f"{what}, most memory", "MB", [run.most_megabytes for run in floods], outcomes),
        Figure("bytes", "small submit, quiet", "ms", [run.quiet_ms for run in floods]),
        Figure("bytes", f"small submit, {what}", "ms", [run.flooded_ms for run in floods]),
        Figure("bytes", f"{QUEUE} × 900 KiB drained, most memory", "MB", queues),
    ]


async def _flood(stand: Stand) -> Flood:
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        async with grpc.aio.insecure_channel(server.address, _OPTIONS) as channel:
            stub = PulseServiceStub(channel)
            calm = asyncio.Event()
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, calm.set)
            quiet = await _small_submits(stub, calm)
            over = asyncio.Event()
            small = asyncio.create_task(_small_submits(stub, over))
            rounds = stand.sized(ROUNDS)
            outcomes = await asyncio.gather(*(_caller(server.address, rounds) for _ in range(CALLERS)))
            over.set()
            flooded = await small
        return Flood(_most_megabytes(server), quiet, flooded, sum(outcomes, Counter[str]()))


async def _small_submits(stub: Any, over: asyncio.Event) -> float:
    """The median of the milliseconds that a small submit takes until it is over."""
    times = []
    while not over.is_set():
        began = time.perf_counter()
        await stub.SubmitJob(pb.SubmitJobRequest(topic="small", payload=b"{}"))
        times.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(_GAP_SECONDS)
    return statistics.median(times)


async def _caller(address: str, rounds: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    async with grpc.aio.insecure_channel(address, _OPTIONS) as channel:
        stub = PulseServiceStub(channel)
        for _ in range(rounds):
            try:
                await stub.SubmitJobs(_request(JOBS_PER_CALL), timeout=60)
                outcomes["stored"] += 1
            except grpc.aio.AioRpcError as error:
                outcomes[error.code().name] += 1
    return outcomes


async def _queue(stand: Stand) -> float:
    jobs = stand.sized(QUEUE)
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        async with grpc.aio.insecure_channel(server.address, _OPTIONS) as channel:
            stub = PulseServiceStub(channel)
            for begin in range(0, jobs, JOBS_PER_CALL):
                await stub.SubmitJobs(_request(min(JOBS_PER_CALL, jobs - begin)))
        await drain(stand, dsn, [server], [TOPIC], jobs)
        return _most_megabytes(server)


def _request(count: int) -> pb.SubmitJobsRequest:
    payload = json.dumps(sized_payload(0, PAYLOAD_BYTES)).encode()
    return pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic=TOPIC, payload=payload)] * count)


def _most_megabytes(server: Server) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None, "the kernel reports the peak of a process"
    return int(found[1]) / 1024
