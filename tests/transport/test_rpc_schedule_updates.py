"""Updates of schedules change the named fields, and nothing else."""

from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.bad_schedule_requests import HOURLY
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.schedule_calls import FAR, fire, get, make, moment, update

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_update_changes_what_is_set_and_nothing_else(server: ServerUnderTest) -> None:
    made = await make(server, cron="0 9 * * *", payload=b"old", metadata={"a": "b"}, name="report")
    changes: list[dict[str, Any]] = [
        {"topic": "other"},
        {"payload": b""},
        {"priority": 0},
        {"max_attempts": 9},
        {"metadata": pb.Metadata()},
        {"catch_up": "all"},
        {"start_within": Duration(seconds=60)},
        {"start_within": Duration(seconds=90, nanos=5000)},
        {"time_zone": "Europe/Paris"},
        {"cron": "0 10 * * *"},
    ]
    for change in changes:
        expected = pb.ScheduleView()
        expected.CopyFrom(made)
        for name, value in change.items():
            if name == "metadata":
                expected.metadata.clear()
            elif isinstance(value, Duration):
                getattr(expected, name).CopyFrom(value)
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


@each_row(
    "kind, spec, change, field",
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
