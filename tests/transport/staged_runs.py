"""What leads along the arrows of results, snoozes, steps, start limits and unique jobs."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.bounds import MAX_SNOOZES
from pulse_server.base.tuning import MAX_STEPS
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


@arrow("RUNNING", "RETRYING", "suspend_jobs")
async def suspended(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.suspend(await worker.take_one(), HOUR)


@arrow("RUNNING", "DEAD_LETTERED", "suspend_jobs")
async def suspended_with_too_many_steps(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    job = await worker.take_one()
    await server.table.connection.execute("UPDATE pulse.jobs SET steps = $1", MAX_STEPS)
    await worker.suspend(job, HOUR)


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
    server.app.work.start_limits.loop.nudge()


async def start_limit_passes(server: ServerUnderTest) -> None:
    await server.table.connection.execute("UPDATE pulse.jobs SET start_by = now() - interval '1 minute'")
    server.app.work.start_limits.loop.nudge()


@arrow("(new)", "PENDING", "insert_rich_jobs")
async def submitted_with_a_unique_key_and_a_lane(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit("unwanted", unique=pb.Unique(key="shop-7"), lane="shop-7")


@arrow("(new)", "PENDING", "fire_queued")
async def fired_behind_a_job(server: ServerUnderTest, worker: StreamingWorker) -> None:
    created = await server.stub.CreateSchedule(pb.CreateScheduleRequest(topic="unwanted", every=HOUR))
    await server.table.connection.execute(
        "UPDATE pulse.schedules SET overlap = 'queue', queued_for = now() WHERE id = $1",
        created.schedule_id,
    )
    server.app.schedules.scheduler.loop.nudge()
