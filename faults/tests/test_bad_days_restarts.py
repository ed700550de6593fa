"""pulsed restarts ten times in a row, each time with leased jobs that no worker has received.

They have three attempts. None may be dead-lettered because of the restarts. The server is killed and stopped
in turn; PULSE_BAD_DAYS=full makes it ten of each.
"""

import asyncio
import inspect
import json
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest

import pulse
from faults.bad_days.scale import RESTARTS
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import eventually
from tests.system.stage import Pulsed, Stage, all_completed, free_port
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker

JOBS = 4
MAX_ATTEMPTS = 3
# The leases of a dead server expire soon.
SHORT = {
    "PULSE_LEASE_TTL": "500ms",
    "PULSE_HEARTBEAT_INTERVAL": "100ms",
    "PULSE_WATCHDOG_INTERVAL": "100ms",
}
# Each between the commit that leases jobs to a worker and their way to it.
DIES_AFTER_HANDOVER = {"PULSE_FAILPOINTS": "handover.stored=kill@1"}
DIES_AFTER_CLAIM = {"PULSE_FAILPOINTS": "claim.leased=kill@1"}


@pytest.mark.parametrize("kinds", RESTARTS, ids=lambda kinds: "-".join(sorted(set(kinds))))
async def test_restarts_in_a_row_dead_letter_nothing_that_was_not_delivered(
    stage: Stage, table: JobsTable, kinds: tuple[str, ...]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with pulse.Pulse(address) as p:
        server = await stage.pulsed(address, **SHORT, **DIES_AFTER_HANDOVER)
        async with grpc.aio.insecure_channel(address) as channel, _worker(channel, "handed-over"):
            enqueuing = await _enqueue_until_it_dies(p, server, table)
        assert await table.count("status = 'RUNNING' AND locked_by = 'handed-over'") >= JOBS
        for number, kind in enumerate(kinds):
            await (_killed if kind == "kill" else _stopped)(stage, table, address, f"{kind}-{number}")
        assert await table.count("finished_at IS NOT NULL") == 0

        await stage.pulsed(address)
        # None of those before it may have lived when the client tried again.
        handles = [handle for batch in await asyncio.gather(*enqueuing) for handle in batch]
    await stage.worker(address, "work")
    await all_completed(table, handles)
    rows = await table.connection.fetch("SELECT attempts, history FROM pulse.all_jobs")
    # No handler had started: each attempt was returned, every time.
    assert {row["attempts"] for row in rows} == {1}
    assert min(len(json.loads(row["history"])) for row in rows) > MAX_ATTEMPTS
    assert {len(starts) for starts in stage.by_job(handles).values()} == {1}


async def _enqueue_until_it_dies(
    p: pulse.Pulse, server: Pulsed, table: JobsTable
) -> list[asyncio.Task[list[pulse.JobHandle]]]:
    """Enqueue a few jobs at a time. Those that the server dies of are acknowledged by the next one."""
    batches: list[asyncio.Task[list[pulse.JobHandle]]] = []
    while server.is_running:
        enqueue = p.enqueue_many(
            "work", [Errand()] * JOBS, max_attempts=MAX_ATTEMPTS, timeout=timedelta(seconds=120)
        )
        batches.append(asyncio.create_task(enqueue))
        await eventually(lambda: batches[-1].done() or not server.is_running, "they are there, or it is not")
        # To a worker that has just come nothing is handed over: it is not known to be idle before a claim.
        while server.is_running and await table.count("status = 'PENDING'"):
            pass
    assert await server.ended() == -signal.SIGKILL
    return batches


async def _killed(stage: Stage, table: JobsTable, address: str, worker_id: str) -> None:
    """Run a server until jobs are claimed for the worker; it dies before they are sent."""
    server = await stage.pulsed(address, **SHORT, **DIES_AFTER_CLAIM)
    async with grpc.aio.insecure_channel(address) as channel, _worker(channel, worker_id):
        await _hasten_until(table, lambda: not server.is_running)
    assert await server.ended() == -signal.SIGKILL
    assert await table.count(f"locked_by = '{worker_id}'") > 0


async def _stopped(stage: Stage, table: JobsTable, address: str, worker_id: str) -> None:
    """Run a server until jobs are sent to a worker that does not read them, and stop it."""
    server = await stage.pulsed(address, **SHORT)
    async with grpc.aio.insecure_channel(address) as channel, _worker(channel, worker_id):
        await _hasten_until(table, lambda: table.count(f"locked_by = '{worker_id}'"))
        server.signal(signal.SIGTERM)
    assert await server.ended() == 0


def _worker(channel: grpc.aio.Channel, worker_id: str) -> StreamingWorker:
    return StreamingWorker(PulseServiceStub(channel), worker_id, topics=["work"], capacity=100)


async def _hasten_until(table: JobsTable, has_happened: Callable[[], Any]) -> None:
    """Return once the jobs are leased again. The backoff between attempts is cut short."""

    async def look() -> bool:
        await table.connection.execute(
            "UPDATE pulse.jobs SET next_run_at = now()"
            " WHERE status = 'RETRYING' AND NOT queued AND next_run_at > now()"
        )
        answer = has_happened()
        return bool(await answer if inspect.isawaitable(answer) else answer)

    await eventually(look, "the leases expire, and another worker gets the jobs")
