"""The RPCs of schedules, against a real server."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_schedule_requests import HOURLY, create
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.test_bad_input import refusal_of

PAST = Timestamp(seconds=1_700_000_000)
FAR = Timestamp(seconds=4_000_000_000)
INVALID = grpc.StatusCode.INVALID_ARGUMENT
TAKEN = grpc.StatusCode.ALREADY_EXISTS
SCHEDULED = "schedule_id IS NOT NULL"


async def make(server: ServerUnderTest, **fields: Any) -> pb.ScheduleView:
    answer = await server.stub.CreateSchedule(create(**fields))
    assert answer.schedule_id == answer.schedule.schedule_id
    view: pb.ScheduleView = answer.schedule
    return view


async def get(server: ServerUnderTest, schedule_id: str) -> pb.ScheduleView:
    answer = await server.stub.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule_id))
    view: pb.ScheduleView = answer.schedule
    return view


async def update(server: ServerUnderTest, schedule_id: str, **fields: Any) -> pb.ScheduleView:
    request = pb.UpdateScheduleRequest(schedule_id=schedule_id, **fields)
    view: pb.ScheduleView = (await server.stub.UpdateSchedule(request)).schedule
    return view


async def fire(server: ServerUnderTest, schedule_id: str, job_id: str = "") -> str:
    request = pb.FireScheduleRequest(schedule_id=schedule_id, job_id=job_id)
    return str((await server.stub.FireSchedule(request)).job_id)


async def count(server: ServerUnderTest) -> int:
    return int(await server.table.connection.fetchval("SELECT count(*) FROM pulse.schedules"))


def moment(timestamp: Timestamp) -> datetime:
    return timestamp.ToDatetime(tzinfo=UTC)


# --- making them


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({"at": FAR}, "once"), ({"every": HOURLY}, "interval"), ({"cron": "0 9 * * 1-5"}, "cron")],
)
async def test_schedule_of_each_kind_is_made_and_told_in_full(
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
    told = {
        "at": made.at if made.HasField("at") else None,
        "every": made.every if made.HasField("every") else None,
        "cron": made.cron or None,
    }
    assert {name: value for name, value in told.items() if value is not None} == spec
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

    assert (made.name, made.priority, made.max_attempts, made.catch_up) == ("", 0, 5, "one")


async def test_moment_that_has_passed_fires_at_once_and_the_schedule_is_gone(server: ServerUnderTest) -> None:
    made = await make(server, at=PAST, payload=b"now")
    async with server.worker() as worker:
        await server.app.scheduler.tick()
        job = await worker.take_one()
        assert job.payload == b"now"
        await worker.complete(job)

    assert (await server.get(job.job_id)).schedule_id == made.schedule_id
    assert await count(server) == 0
    error = await refusal_of(server.stub.GetSchedule(pb.GetScheduleRequest(schedule_id=made.schedule_id)))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_moment_to_come_is_taken_by_the_strict(server: ServerUnderTest) -> None:
    assert (await make(server, at=FAR, strict=True)).next_run_at == FAR


# --- names


@pytest.mark.parametrize(
    "spec",
    [
        {"at": FAR},
        {"every": HOURLY},
        {"every": Duration(seconds=1, nanos=500_499_999)},
        {"cron": "@daily", "time_zone": "Europe/Paris"},
        {"cron": "0  9 * *   1-5"},
    ],
    ids=str,
)
async def test_declaring_a_schedule_again_is_the_same_schedule(
    server: ServerUnderTest, spec: dict[str, Any]
) -> None:
    first = await make(server, name="reconcile", metadata={"a": "b"}, **spec)
    again = await make(server, name="reconcile", metadata={"a": "b"}, **spec)

    assert again == first
    assert await count(server) == 1


async def test_declaring_it_again_does_not_resume_it(server: ServerUnderTest) -> None:
    first = await make(server, name="reconcile")
    await server.stub.PauseSchedule(pb.PauseScheduleRequest(schedule_id=first.schedule_id))

    assert (await make(server, name="reconcile")).paused


@pytest.mark.parametrize(
    "difference",
    [
        {"every": Duration(seconds=60)},
        {"cron": "@hourly"},
        {"topic": "other"},
        {"payload": b"other"},
        {"priority": 1},
        {"max_attempts": 1},
        {"metadata": {"a": "b"}},
        {"catch_up": "all"},
    ],
    ids=str,
)
async def test_name_that_means_something_else_is_refused_and_stays_as_it_was(
    server: ServerUnderTest, difference: dict[str, Any]
) -> None:
    first = await make(server, name="reconcile")

    error = await refusal_of(server.stub.CreateSchedule(create(**{"name": "reconcile"} | difference)))

    assert error.code() is TAKEN
    details = str(error.details())
    assert "'reconcile'" in details
    assert first.schedule_id in details
    assert "replace" in details
    assert await get(server, first.schedule_id) == first


async def test_name_is_redefined_with_replace(server: ServerUnderTest) -> None:
    first = await make(server, name="reconcile", metadata={"a": "b"}, payload=b"old")
    every = Duration(seconds=60)
    replaced = await make(server, name="reconcile", topic="other", every=every, priority=4, replace=True)

    assert replaced.schedule_id == first.schedule_id
    assert (replaced.topic, replaced.every, replaced.priority) == ("other", every, 4)
    assert (dict(replaced.metadata), replaced.payload) == ({}, b"")
    assert moment(replaced.next_run_at) < moment(first.next_run_at)
    assert await count(server) == 1


async def test_replace_with_the_same_definition_leaves_the_cursor_alone(server: ServerUnderTest) -> None:
    first = await make(server, name="reconcile")

    assert await make(server, name="reconcile", replace=True) == first


async def test_replace_does_not_change_the_kind(server: ServerUnderTest) -> None:
    await make(server, name="reconcile")

    error = await refusal_of(
        server.stub.CreateSchedule(create(name="reconcile", cron="@daily", replace=True))
    )

    assert error.code() is INVALID
    assert "kind interval" in str(error.details())


# --- looking at them


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


# --- pausing and deleting them


async def test_paused_schedule_is_told_and_resumed(server: ServerUnderTest) -> None:
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


# --- retuning them


async def test_update_changes_what_is_set_and_nothing_else(server: ServerUnderTest) -> None:
    made = await make(server, cron="0 9 * * *", payload=b"old", metadata={"a": "b"}, name="report")
    changes: list[dict[str, Any]] = [
        {"topic": "other"},
        {"payload": b""},
        {"priority": 0},
        {"max_attempts": 9},
        {"metadata": pb.Metadata()},
        {"catch_up": "all"},
        {"time_zone": "Europe/Paris"},
        {"cron": "0 10 * * *"},
    ]
    for change in changes:
        expected = pb.ScheduleView()
        expected.CopyFrom(made)
        for name, value in change.items():
            if name == "metadata":
                expected.metadata.clear()
            else:
                setattr(expected, name, value)
        made = await update(server, made.schedule_id, **change)
        expected.next_run_at.CopyFrom(made.next_run_at)
        assert made == expected, change
    assert (made.cron, made.time_zone) == ("0 10 * * *", "Europe/Paris")


async def test_update_of_the_work_leaves_the_timetable_where_it_was(server: ServerUnderTest) -> None:
    made = await make(server)
    same_interval = await update(server, made.schedule_id, topic="other", every=HOURLY)

    assert same_interval.next_run_at == made.next_run_at


async def test_update_of_the_timetable_starts_from_now(server: ServerUnderTest) -> None:
    made = await make(server)
    faster = await update(server, made.schedule_id, every=Duration(seconds=60))

    now = await server.table.connection.fetchval("SELECT clock_timestamp()")
    assert timedelta(0) < moment(faster.next_run_at) - now <= timedelta(minutes=1)


async def test_update_affects_jobs_to_come_only(server: ServerUnderTest) -> None:
    made = await make(server)
    before = await fire(server, made.schedule_id)
    await update(server, made.schedule_id, topic="other")
    after = await fire(server, made.schedule_id)

    assert ((await server.get(before)).topic, (await server.get(after)).topic) == ("mail", "other")


@pytest.mark.parametrize(
    ("kind", "spec", "change", "field"),
    [
        ("interval", {"every": HOURLY}, {"cron": "@daily"}, "spec"),
        ("interval", {"every": HOURLY}, {"cron": "@daily", "time_zone": "UTC"}, "spec"),
        ("interval", {"every": HOURLY}, {"at": FAR}, "spec"),
        ("once", {"at": FAR}, {"every": HOURLY}, "spec"),
        ("cron", {"cron": "@daily"}, {"every": HOURLY}, "spec"),
        ("interval", {"every": HOURLY}, {"time_zone": "UTC"}, "time_zone"),
        ("once", {"at": FAR}, {"time_zone": "UTC"}, "time_zone"),
        ("interval", {"every": HOURLY}, {"every": Duration(nanos=1)}, "every"),
        ("cron", {"cron": "@daily"}, {"cron": "nonsense"}, "cron"),
        ("cron", {"cron": "@daily"}, {"cron": ""}, "cron"),
        ("cron", {"cron": "@daily"}, {"time_zone": "Mars/Olympus"}, "time_zone"),
    ],
    ids=str,
)
async def test_update_that_makes_no_sense_is_refused_by_name(
    server: ServerUnderTest, kind: str, spec: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    made = await make(server, **spec)

    call = server.stub.UpdateSchedule(pb.UpdateScheduleRequest(schedule_id=made.schedule_id, **change))
    error = await refusal_of(call)

    assert error.code() is INVALID
    assert str(error.details()).startswith(field)
    assert field != "spec" or f"kind {kind}" in str(error.details())
    assert await get(server, made.schedule_id) == made


# --- firing them by hand, and what they made


async def test_fire_by_hand_reaches_a_worker_and_leaves_the_schedule_alone(server: ServerUnderTest) -> None:
    made = await make(server, payload=b"{}", priority=2)
    async with server.worker() as worker:
        job_id = await fire(server, made.schedule_id)
        job = await worker.take_one()
        assert (job.job_id, job.payload, job.priority) == (job_id, b"{}", 2)
        await worker.complete(job)

    assert await get(server, made.schedule_id) == made


async def test_fire_that_is_repeated_with_its_id_fires_once(server: ServerUnderTest) -> None:
    made = await make(server)
    job_id = "0190f3a2-7b1c-7def-8123-456789abcdef"

    assert [await fire(server, made.schedule_id, job_id) for _ in range(3)] == [job_id] * 3
    assert await server.table.count(SCHEDULED) == 1


async def test_fire_under_the_id_of_another_job_is_refused(server: ServerUnderTest) -> None:
    """An OK would tell of a job that the schedule never made."""
    made, other = await make(server), await make(server)
    for job_id in (await server.submit(), await fire(server, other.schedule_id)):
        request = pb.FireScheduleRequest(schedule_id=made.schedule_id, job_id=job_id)
        error = await refusal_of(server.stub.FireSchedule(request))
        assert error.code() is TAKEN
        assert job_id in str(error.details())
    assert await server.table.count(f"schedule_id = '{made.schedule_id}'") == 0


@pytest.mark.parametrize("method", ["ListScheduleJobs", "ListScheduleFires"])
async def test_what_a_schedule_made_is_listed_newest_first_by_pages(
    server: ServerUnderTest, method: str
) -> None:
    made, other = await make(server), await make(server)
    newest_first = [await fire(server, made.schedule_id) for _ in range(7)][::-1]
    await fire(server, other.schedule_id)
    request_type = getattr(pb, f"{method}Request")
    seen, token = [], ""
    while True:
        request = request_type(schedule_id=made.schedule_id, limit=3, page_token=token)
        page = await getattr(server.stub, method)(request)
        entries = page.jobs if method == "ListScheduleJobs" else page.fires
        seen += [entry.job_id for entry in entries]
        if not (token := page.next_page_token):
            break
        await fire(server, made.schedule_id)

    assert seen == newest_first
    everything = await getattr(server.stub, method)(request_type(schedule_id=made.schedule_id))
    assert len(everything.jobs if method == "ListScheduleJobs" else everything.fires) == 9


async def test_dead_letter_of_a_schedule_is_listed_with_what_it_died_of(server: ServerUnderTest) -> None:
    made = await make(server, max_attempts=1)
    job_id = await fire(server, made.schedule_id)
    async with server.worker(capacity=1) as worker:
        await worker.fail(await worker.take_one(), "boom")
    (listed,) = (
        await server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=made.schedule_id))
    ).jobs
    job = (await server.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job

    assert (listed.status, listed.last_error) == ("DEAD_LETTERED", "boom")
    assert listed.error_group == job.error_group != "none"


async def test_fires_tell_when_and_what_became_of_them(server: ServerUnderTest) -> None:
    made = await make(server)
    done, waiting = await fire(server, made.schedule_id), await fire(server, made.schedule_id)
    async with server.worker(capacity=1) as worker:
        await worker.complete(await worker.take_one())
        listed = await server.stub.ListScheduleFires(
            pb.ListScheduleFiresRequest(schedule_id=made.schedule_id)
        )
    jobs = await server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=made.schedule_id))

    assert [fired.job_id for fired in listed.fires] == [waiting, done]
    assert listed.fires[1].status == "COMPLETED"
    assert [fired.fired_at for fired in listed.fires] == [job.submitted_at for job in jobs.jobs]


async def test_pages_of_heavy_entries_fit_into_what_a_default_client_receives(
    server: ServerUnderTest,
) -> None:
    heavy = {"k": "x" * 16_000}
    schedules = [(await make(server, metadata=heavy)).schedule_id for _ in range(300)]
    jobs = [await fire(server, schedules[0]) for _ in range(300)]

    seen, token = [], ""
    while True:
        page = await server.stub.ListSchedules(pb.ListSchedulesRequest(limit=1000, page_token=token))
        seen += [view.schedule_id for view in page.schedules]
        if not (token := page.next_page_token):
            break
    assert seen == schedules

    seen = []
    while True:
        request = pb.ListScheduleJobsRequest(schedule_id=schedules[0], limit=1000, page_token=token)
        listed = await server.stub.ListScheduleJobs(request)
        seen += [job.job_id for job in listed.jobs]
        if not (token := listed.next_page_token):
            break
    assert seen == jobs[::-1]


# --- previews


@pytest.mark.parametrize(
    ("spec", "wanted", "expected"),
    [
        ({"at": FAR}, 5, 1),
        ({"every": HOURLY}, 0, 5),
        ({"cron": "@hourly"}, 100, 100),
        ({"cron": "@daily"}, 1, 1),
    ],
    ids=str,
)
async def test_preview_tells_the_next_fires_and_stores_nothing(
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
