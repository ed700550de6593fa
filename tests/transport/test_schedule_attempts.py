"""The attempts of a schedule's jobs: its own number, the topic's policy when it fires, or a default."""

from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of


async def create(server: ServerUnderTest, **fields: Any) -> pb.ScheduleView:
    request = pb.CreateScheduleRequest(
        topic="mail", name="hourly", payload=b"{}", every=Duration(seconds=3600), **fields
    )
    return (await server.stub.CreateSchedule(request)).schedule  # type: ignore[no-any-return]


async def fire(server: ServerUnderTest, schedule: pb.ScheduleView) -> int:
    """Fire the schedule by hand. Returns the attempts of the job."""
    fired = await server.stub.FireSchedule(pb.FireScheduleRequest(schedule_id=schedule.schedule_id))
    return (await server.get(fired.job_id)).max_attempts


async def set_attempts(server: ServerUnderTest, count: int) -> None:
    run = pb.TopicEntries(max_attempts=count)
    await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=run))


async def test_schedule_without_a_number_follows_the_policy_of_its_topic(server: ServerUnderTest) -> None:
    schedule = await create(server)
    assert (schedule.max_attempts, await fire(server, schedule)) == (25, 25)

    await set_attempts(server, 7)
    assert await fire(server, schedule) == 7
    # Created again, it is the same one, and shows what holds now.
    again = await create(server)
    assert (again.schedule_id, again.max_attempts) == (schedule.schedule_id, 7)

    returned = pb.SetTopicRequest(topic="mail", reset=["max_attempts"])
    await server.stub.SetTopic(returned)
    assert await fire(server, schedule) == 25


async def test_schedule_with_a_number_keeps_it(server: ServerUnderTest) -> None:
    await set_attempts(server, 7)
    schedule = await create(server, max_attempts=3)
    assert (schedule.max_attempts, await fire(server, schedule)) == (3, 3)


async def test_default_of_a_schedule_holds_until_the_topic_has_a_policy(server: ServerUnderTest) -> None:
    schedule = await create(server, max_attempts=1, max_attempts_is_default=True)
    assert (schedule.max_attempts, await fire(server, schedule)) == (1, 1)

    await set_attempts(server, 7)
    assert await fire(server, schedule) == 7
    again = await create(server, max_attempts=1, max_attempts_is_default=True)
    assert (again.schedule_id, again.max_attempts) == (schedule.schedule_id, 7)

    await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", reset=["max_attempts"]))
    assert await fire(server, schedule) == 1


async def test_mark_without_a_number_means_nothing(server: ServerUnderTest) -> None:
    schedule = await create(server, max_attempts_is_default=True, replace=True)
    assert (schedule.max_attempts, await fire(server, schedule)) == (25, 25)
    assert await create(server, replace=True) == schedule


async def test_default_of_a_schedule_is_checked_as_its_own_number(server: ServerUnderTest) -> None:
    error = await refusal_of(create(server, max_attempts=0, max_attempts_is_default=True))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_schedule_that_gets_a_number_no_longer_follows_the_policy(server: ServerUnderTest) -> None:
    await set_attempts(server, 7)
    schedule = await create(server)
    await server.stub.UpdateSchedule(
        pb.UpdateScheduleRequest(schedule_id=schedule.schedule_id, max_attempts=4)
    )
    assert await fire(server, schedule) == 4
