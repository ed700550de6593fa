"""The attempts of a schedule's jobs: its own number, or what the policy of the topic says when it fires."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest


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
    run = pb.RunPolicy(max_attempts=count)
    await server.stub.SetTopicPolicy(pb.SetTopicPolicyRequest(topic="mail", run=run))


async def test_schedule_without_a_number_follows_the_policy_of_its_topic(server: ServerUnderTest) -> None:
    schedule = await create(server)
    assert (schedule.max_attempts, await fire(server, schedule)) == (25, 25)

    await set_attempts(server, 7)
    assert await fire(server, schedule) == 7
    # Created again, it is the same one, and shows what holds now.
    again = await create(server)
    assert (again.schedule_id, again.max_attempts) == (schedule.schedule_id, 7)

    returned = pb.SetTopicPolicyRequest(topic="mail", returned=["max_attempts"])
    await server.stub.SetTopicPolicy(returned)
    assert await fire(server, schedule) == 25


async def test_schedule_with_a_number_keeps_it(server: ServerUnderTest) -> None:
    await set_attempts(server, 7)
    schedule = await create(server, max_attempts=3)
    assert (schedule.max_attempts, await fire(server, schedule)) == (3, 3)


async def test_schedule_that_gets_a_number_no_longer_follows_the_policy(server: ServerUnderTest) -> None:
    await set_attempts(server, 7)
    schedule = await create(server)
    await server.stub.UpdateSchedule(
        pb.UpdateScheduleRequest(schedule_id=schedule.schedule_id, max_attempts=4)
    )
    assert await fire(server, schedule) == 4
