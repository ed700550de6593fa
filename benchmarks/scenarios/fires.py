"""Schedules that each fire once, two seconds after they were made: how late their jobs are submitted."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import grpc

from benchmarks.figures import Figure, percentile
from benchmarks.filling import TOPIC
from benchmarks.stand import Stand
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

if TYPE_CHECKING:
    from pulse.v1.pulse_pb2_grpc import PulseServiceAsyncStub

SCHEDULES = 500
CALLERS = 20
AHEAD = timedelta(seconds=2)


async def measure(stand: Stand) -> list[Figure]:
    # Each run starts elsewhere between two ticks of the scheduler.
    runs = [await _run(stand, timedelta(seconds=number / stand.repeats)) for number in range(stand.repeats)]
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return [
        Figure("fires", f"occurrence → submitted, {name}", "ms", [percentile(run, share) for run in runs])
        for name, share in shares.items()
    ]


async def _run(stand: Stand, phase: timedelta) -> list[float]:
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        connection = await asyncpg.connect(dsn)
        await asyncio.sleep(phase.total_seconds())
        try:
            occurrences = await _make_schedules(PulseServiceStub(channel), connection)
            while await connection.fetchval("SELECT count(*) FROM pulse.all_jobs") < SCHEDULES:
                await asyncio.sleep(0.05)
            rows = await connection.fetch("SELECT schedule_id, submitted_at FROM pulse.all_jobs")
        finally:
            await connection.close()
    return [
        (row["submitted_at"] - occurrences[str(row["schedule_id"])]).total_seconds() * 1000 for row in rows
    ]


async def _make_schedules(
    stub: PulseServiceAsyncStub, connection: asyncpg.Connection[asyncpg.Record]
) -> dict[str, datetime]:
    """Make them as fast as the callers can. Returns when each is to fire, by the database's clock."""
    ahead_of_us = await connection.fetchval("SELECT clock_timestamp()") - datetime.now().astimezone()
    numbers = iter(range(SCHEDULES))
    occurrences: dict[str, datetime] = {}

    async def call() -> None:
        for _ in numbers:
            at = datetime.now().astimezone() + ahead_of_us + AHEAD
            answer = await stub.CreateSchedule(pb.CreateScheduleRequest(topic=TOPIC, at=at))
            occurrences[answer.schedule_id] = at

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return occurrences
