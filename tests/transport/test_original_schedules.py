"""Schedules and the pause switch over the first contract."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.transport.original_contract import OriginalClient
from tests.transport.pulse_server_under_test import ServerUnderTest

PAST = {"seconds": 1_700_000_000}
FAR = {"seconds": 4_000_000_000}


@pytest.fixture
def client(server: ServerUnderTest) -> OriginalClient:
    return OriginalClient(server.channel)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({"at": FAR}, "once"), ({"every": {"seconds": 60}}, "interval"), ({"cron": "*/5 * * * *"}, "cron")],
)
async def test_schedule_is_made_listed_paused_resumed_and_deleted(
    client: OriginalClient, spec: dict[str, Any], kind: str
) -> None:
    made = await client.call("CreateSchedule", topic="mail", payload=b"{}", **spec)
    named = {"schedule_id": made.schedule_id}

    async def listed() -> Any:
        (view,) = (await client.call("ListSchedules")).schedules
        return view

    view = await listed()
    assert (view.schedule_id, view.topic, view.kind) == (made.schedule_id, "mail", kind)
    assert view.cron == spec.get("cron", "")
    assert view.HasField("every") is (kind == "interval")
    assert view.HasField("next_run_at")
    assert not view.HasField("last_run_at")
    await client.call("PauseSchedule", **named)
    assert (await listed()).paused
    await client.call("ResumeSchedule", **named)
    assert not (await listed()).paused
    await client.call("DeleteSchedule", **named)
    assert not (await client.call("ListSchedules")).schedules


@pytest.mark.parametrize(
    "cron",
    ["@every 5m", "@every 1h30m", "TZ=Europe/Paris 0 9 * * *", "CRON_TZ=Asia/Tokyo @daily", "0 9 ? * MON"],
)
async def test_cron_of_an_old_producer_comes_back_as_it_was_sent(client: OriginalClient, cron: str) -> None:
    await client.call("CreateSchedule", topic="mail", payload=b"{}", cron=cron)
    (view,) = (await client.call("ListSchedules")).schedules

    assert (view.kind, view.cron) == ("cron", cron)
    assert not view.HasField("every")


async def test_two_schedules_alike_are_two(client: OriginalClient) -> None:
    """The first contract has no names."""
    for _ in range(2):
        await client.call("CreateSchedule", topic="mail", cron="@daily")

    assert len((await client.call("ListSchedules")).schedules) == 2


async def test_fire_is_a_job_that_an_old_worker_runs_and_both_lists_contain(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    made = await client.call("CreateSchedule", topic="mail", payload=b"hello", at=PAST)
    stream = client.stream(topics=["mail"], worker_id="old")
    await server.app.schedules.scheduler.tick()
    job = (await stream.read()).assignment
    assert (job.payload, job.attempt) == (b"hello", 1)
    await client.call("ReportResult", job_id=job.job_id, success=True)

    (listed,) = (await client.call("ListScheduleJobs", schedule_id=made.schedule_id)).jobs
    (fired,) = (await client.call("ListScheduleFires", schedule_id=made.schedule_id)).fires

    assert (listed.job_id, listed.status) == (job.job_id, "COMPLETED")
    assert fired.job_id == job.job_id
    submitted_at = (await server.get(job.job_id)).submitted_at
    assert Timestamp.FromString(fired.fired_at.SerializeToString()) == submitted_at
    assert not (await client.call("ListSchedules")).schedules, "a once is gone after its fire"
    stream.cancel()


async def test_interval_keeps_its_unit(server: ServerUnderTest, client: OriginalClient) -> None:
    await client.call("CreateSchedule", topic="mail", every={"seconds": 90, "nanos": 500_000_000})
    (view,) = (await client.call("ListSchedules")).schedules

    assert Duration.FromString(view.every.SerializeToString()) == Duration(seconds=90, nanos=500_000_000)


async def test_dispatch_is_paused_asked_and_resumed(server: ServerUnderTest, client: OriginalClient) -> None:
    assert not (await client.call("GetDispatchStatus")).paused
    await client.call("PauseDispatch", reason="maintenance")
    dispatch = await client.call("GetDispatchStatus")
    assert (dispatch.paused, dispatch.reason, dispatch.HasField("paused_at")) == (True, "maintenance", True)

    job_id = (await client.call("SubmitJob", topic="mail")).job_id
    stream = client.stream(topics=["mail"], worker_id="old")
    resumed_at = await server.table.connection.fetchval("SELECT clock_timestamp()")
    await client.call("ResumeDispatch")
    assert (await stream.read()).assignment.job_id == job_id
    assert (await server.table.row(job_id))["started_at"] > resumed_at

    dispatch = await client.call("GetDispatchStatus")
    assert (dispatch.paused, dispatch.reason, dispatch.HasField("paused_at")) == (False, "", False)
    stream.cancel()
