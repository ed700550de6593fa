"""start_within of a schedule."""

from google.protobuf.duration_pb2 import Duration

from tests.transport.bad_schedule_requests import HOURLY
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.schedule_calls import fire, get, make, update


async def test_fired_job_without_a_worker_is_canceled_when_its_time_to_start_is_over(
    server: ServerUnderTest,
) -> None:
    schedule = await make(server, start_within=Duration(nanos=1_000_000))
    job_id = await fire(server, schedule.schedule_id)
    await server.app.work.start_limits.loop.wait_for_ticks(2)
    job = await server.get(job_id)

    assert (job.status, job.attempts, job.schedule_id) == ("CANCELED", 0, schedule.schedule_id)
    assert "as start_within asks" in job.last_error


async def test_fired_job_that_starts_in_time_runs_as_any_other(server: ServerUnderTest) -> None:
    schedule = await make(server, start_within=HOURLY)
    async with server.worker() as worker:
        job_id = await fire(server, schedule.schedule_id)
        assert (await server.get(job_id)).HasField("start_by")
        await worker.complete(await worker.take_one())
    assert (await server.get(job_id)).status == "COMPLETED"


async def test_views_have_the_time_to_start_if_there_is_one(server: ServerUnderTest) -> None:
    limited = await make(server, start_within=HOURLY)
    unlimited = await make(server)

    assert (await get(server, limited.schedule_id)).start_within == HOURLY
    assert not (await get(server, unlimited.schedule_id)).HasField("start_within")


async def test_update_to_zero_removes_the_time_to_start(server: ServerUnderTest) -> None:
    schedule = await make(server, start_within=HOURLY)
    await update(server, schedule.schedule_id, start_within=Duration())

    assert not (await get(server, schedule.schedule_id)).HasField("start_within")
    assert not (await server.get(await fire(server, schedule.schedule_id))).HasField("start_by")


async def test_definition_with_another_time_to_start_replaces_the_schedule(server: ServerUnderTest) -> None:
    first = await make(server, name="report", start_within=HOURLY)
    assert await make(server, name="report", start_within=HOURLY) == first

    changed = await make(server, name="report", start_within=Duration(seconds=60), replace=True)
    assert (changed.schedule_id, changed.start_within.seconds) == (first.schedule_id, 60)
    without = await make(server, name="report", replace=True)
    assert (without.schedule_id, without.HasField("start_within")) == (first.schedule_id, False)
