"""What leads along the arrows of snoozes and start limits."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from pulse_server.domain.run_policies import MAX_SNOOZES
from tests.transport.arrows import arrow
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker

HOUR = Duration(seconds=3600)


@arrow("RUNNING", "RETRYING", "snooze_jobs")
async def snoozed(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.fail(await worker.take_one(), snooze=HOUR)


@arrow("RUNNING", "DEAD_LETTERED", "snooze_jobs")
async def snoozed_too_often(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    job = await worker.take_one()
    await server.table.connection.execute("UPDATE pulse.jobs SET snoozes = $1", MAX_SNOOZES)
    await worker.fail(job, snooze=HOUR)


@arrow("PENDING", "CANCELED", "cancel_unstarted")
async def not_started(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit("unwanted", start_within=HOUR)
    await start_limit_passes(server)


@arrow("RETRYING", "CANCELED", "cancel_unstarted")
async def not_started_after_a_release(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit(start_within=HOUR)
    job = await worker.take_one()
    # No claim takes it again.
    await server.table.connection.execute("UPDATE pulse.jobs SET start_by = now() - interval '1 minute'")
    await worker.release(job)
    server.app.start_limits.loop.nudge()


async def start_limit_passes(server: ServerUnderTest) -> None:
    await server.table.connection.execute("UPDATE pulse.jobs SET start_by = now() - interval '1 minute'")
    server.app.start_limits.loop.nudge()
