"""The RPCs of schedules: create, read, pause and delete them, and preview their fires."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.bad_schedule_requests import HOURLY
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.schedule_calls import FAR, count, fire, get, make, moment, update

PAST = Timestamp(seconds=1_700_000_000)
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({"at": FAR}, "once"), ({"every": HOURLY}, "interval"), ({"cron": "0 9 * * 1-5"}, "cron")],
)
async def test_schedule_of_each_kind_is_stored_and_returned_in_full(
    server: ServerUnderTest, spec: dict[str, Any], kind: str
) -> None:
    made = await make(
        server,
        **spec,
        name="a name",
        payload=b"{}",
        priority=-3,
        max_attempts=2,
        metadata={"a": "ü"},
        catch_up="skip",
    )

    assert made == await get(server, made.schedule_id)
    assert (made.kind, made.topic, made.payload, made.name) == (kind, "mail", b"{}", "a name")
    assert (made.priority, made.max_attempts, dict(made.metadata)) == (-3, 2, {"a": "ü"})
    assert (made.catch_up, made.paused, made.HasField("last_run_at")) == ("skip", False, False)
    stored = {
        "at": made.at if made.HasField("at") else None,
        "every": made.every if made.HasField("every") else None,
        "cron": made.cron or None,
    }
    assert {name: value for name, value in stored.items() if value is not None} == spec
    assert made.time_zone == ("UTC" if kind == "cron" else "")


async def test_first_run_follows_from_the_timetable(server: ServerUnderTest) -> None:
    now = await server.table.connection.fetchval("SELECT clock_timestamp()")
    at, every = await make(server, at=FAR), await make(server, every=HOURLY)
    cron = await make(server, cron="30 4 1 1 *", time_zone="Asia/Kolkata")

    assert at.next_run_at == FAR
    assert timedelta(0) <= moment(every.next_run_at) - now - timedelta(hours=1) < timedelta(minutes=5)
    # 04:30 in Kolkata is 23:00 of the day before in Greenwich.
    assert (moment(cron.next_run_at).month, moment(cron.next_run_at).day) == (12, 31)
    assert (moment(cron.next_run_at).hour, moment(cron.next_run_at).minute) == (23, 0)


async def test_zone_in_the_expression_is_shown_and_goes_with_the_expression(server: ServerUnderTest) -> None:
    made = await make(server, cron="TZ=Europe/Paris 0 9 * * *")
    assert (made.cron, made.time_zone) == ("TZ=Europe/Paris 0 9 * * *", "Europe/Paris")

    moved = await update(server, made.schedule_id, cron="CRON_TZ=Asia/Tokyo 0 9 * * *")
    assert (moved.cron, moved.time_zone) == ("CRON_TZ=Asia/Tokyo 0 9 * * *", "Asia/Tokyo")
    error = await refusal_of(update(server, made.schedule_id, time_zone="Europe/Paris"))
    assert (error.code(), error.details()) == (
        INVALID,
        "time_zone is named by the cron expression itself: change it there, in the expression.",
    )
    plain = await update(server, made.schedule_id, cron="0 9 * * *")
    assert (plain.cron, plain.time_zone) == ("0 9 * * *", "Asia/Tokyo"), "the zone stays"
    error = await refusal_of(make(server, cron="TZ=Europe/Paris 0 9 * * *", time_zone="Asia/Tokyo"))
    assert error.code() == INVALID


async def test_bare_schedule_has_the_defaults(server: ServerUnderTest) -> None:
    made = await make(server)

    assert (made.name, made.priority, made.max_attempts, made.catch_up) == ("", 0, 25, "one")


async def test_moment_that_has_passed_fires_at_once_and_the_schedule_is_gone(server: ServerUnderTest) -> None:
    made = await make(server, at=PAST, payload=b"now")
    async with server.worker() as worker:
        await server.app.schedules.scheduler.tick()
        job = await worker.take_one()
        assert job.payload == b"now"
        await worker.complete(job)

    assert (await server.get(job.job_id)).schedule_id == made.schedule_id
    assert await count(server) == 0
    error = await refusal_of(server.stub.GetSchedule(pb.GetScheduleRequest(schedule_id=made.schedule_id)))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_moment_to_come_is_taken_by_the_strict(server: ServerUnderTest) -> None:
    assert (await make(server, at=FAR, strict=True)).next_run_at == FAR


async def test_schedule_is_found_by_its_name(server: ServerUnderTest) -> None:
    made = await make(server, name="täglich / 日報")
    found = await server.stub.GetSchedule(pb.GetScheduleRequest(name="täglich / 日報"))

    assert found.schedule == made


async def test_list_is_oldest_first_and_leaves_payloads_out(server: ServerUnderTest) -> None:
    made = [await make(server, payload=b"large") for _ in range(3)]
    listed = await server.stub.ListSchedules(pb.ListSchedulesRequest())

    assert [view.schedule_id for view in listed.schedules] == [view.schedule_id for view in made]
    assert {view.payload for view in listed.schedules} == {b""}
    assert listed.next_page_token == ""


async def test_pages_meet_every_schedule_once_while_some_come_and_go(server: ServerUnderTest) -> None:
    made = [(await make(server)).schedule_id for _ in range(7)]
    seen, token, pages = [], "", 0
    while True:
        page = await server.stub.ListSchedules(pb.ListSchedulesRequest(limit=3, page_token=token))
        seen += [view.schedule_id for view in page.schedules]
        pages += 1
        if not (token := page.next_page_token):
            break
        if pages == 1:
            await server.stub.DeleteSchedule(pb.DeleteScheduleRequest(schedule_id=made[0]))
    late = (await make(server)).schedule_id

    assert (seen, pages) == (made, 3)
    assert late not in seen


async def test_paused_schedule_is_shown_and_resumed(server: ServerUnderTest) -> None:
    made = await make(server)
    request = {"schedule_id": made.schedule_id}
    for _ in range(2):  # to pause what is paused is no error
        await server.stub.PauseSchedule(pb.PauseScheduleRequest(**request))
        assert (await get(server, made.schedule_id)).paused
    for _ in range(2):
        await server.stub.ResumeSchedule(pb.ResumeScheduleRequest(**request))
        assert await get(server, made.schedule_id) == made


async def test_deleted_schedule_is_gone_and_its_jobs_are_not(server: ServerUnderTest) -> None:
    made = await make(server)
    job_id = await fire(server, made.schedule_id)
    await server.stub.DeleteSchedule(pb.DeleteScheduleRequest(schedule_id=made.schedule_id))

    assert await count(server) == 0
    listed = await server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=made.schedule_id))
    assert [job.job_id for job in listed.jobs] == [job_id]
    again = server.stub.DeleteSchedule(pb.DeleteScheduleRequest(schedule_id=made.schedule_id))
    assert (await refusal_of(again)).code() is grpc.StatusCode.NOT_FOUND


@each_row(
    "spec, wanted, expected",
    [
        ({"at": FAR}, 5, 1),
        ({"every": HOURLY}, 0, 5),
        ({"cron": "@hourly"}, 100, 100),
        ({"cron": "@daily"}, 1, 1),
    ],
)
async def test_preview_returns_the_next_fires_and_stores_nothing(
    server: ServerUnderTest, spec: dict[str, Any], wanted: int, expected: int
) -> None:
    answer = await server.stub.PreviewSchedule(pb.PreviewScheduleRequest(count=wanted, **spec))

    fires = [moment(fire) for fire in answer.fires]
    assert len(fires) == expected
    assert fires == sorted(set(fires))
    assert fires[0] > await server.table.connection.fetchval("SELECT now()")
    assert await count(server) == 0


async def test_preview_is_in_the_time_zone(server: ServerUnderTest) -> None:
    request = pb.PreviewScheduleRequest(cron="0 9 * * *", time_zone="Asia/Tokyo")
    answer = await server.stub.PreviewSchedule(request)

    assert {moment(fire).hour for fire in answer.fires} == {0}
