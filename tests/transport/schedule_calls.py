"""Calls about schedules, as the tests make them."""

from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_schedule_requests import create
from tests.transport.pulse_server_under_test import ServerUnderTest

FAR = Timestamp(seconds=4_000_000_000)


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
