"""A schedule with a name is declared again, replaced, or refused."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_schedule_requests import HOURLY, create
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.schedule_calls import FAR, count, get, make, moment

INVALID = grpc.StatusCode.INVALID_ARGUMENT
TAKEN = grpc.StatusCode.ALREADY_EXISTS


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

    again = await make(server, name="reconcile", replace=True)
    assert (again.schedule_id, again.next_run_at) == (first.schedule_id, first.next_run_at)
    assert (first.declared, again.declared) == (False, True)
    assert await make(server, name="reconcile", replace=True) == again


async def test_replace_does_not_change_the_kind(server: ServerUnderTest) -> None:
    await make(server, name="reconcile")

    error = await refusal_of(
        server.stub.CreateSchedule(create(name="reconcile", cron="@daily", replace=True))
    )

    assert error.code() is INVALID
    assert "kind interval" in str(error.details())
