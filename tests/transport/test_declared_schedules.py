"""DeclareSchedules: which schedules are in the code of an application, and which have vanished from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role, User
from tests.rows import each_row
from tests.transport.authorized import PASSWORD, USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

ALL_USERS = (*USERS, User("shop", PASSWORD, Role.WORKER))


@pytest.fixture
async def guarded(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=ALL_USERS) as server:
        yield server


async def create(stub: Any, *names: str) -> None:
    for name in names:
        every = Duration(seconds=3600)
        await stub.CreateSchedule(
            pb.CreateScheduleRequest(name=name, topic="mail", every=every, replace=True)
        )


async def declare(stub: Any, application: str, *names: str) -> list[str]:
    """What an application does when it starts. Returns what has vanished from its code."""
    await create(stub, *names)
    request = pb.DeclareSchedulesRequest(application=application, names=names)
    return list((await stub.DeclareSchedules(request)).vanished)


async def listed(stub: Any) -> dict[str, tuple[str, bool]]:
    """The application of each schedule, and whether it has vanished from its code."""
    schedules = (await stub.ListSchedules(pb.ListSchedulesRequest())).schedules
    return {one.name: (one.declared_by, one.HasField("vanished_at")) for one in schedules}


async def test_schedule_that_vanishes_from_the_code_is_marked_and_named_at_each_start(
    server: ServerUnderTest,
) -> None:
    assert await declare(server.stub, "shop", "daily", "weekly") == []
    assert await declare(server.stub, "shop", "daily") == ["weekly"]
    assert await declare(server.stub, "shop", "daily") == ["weekly"]
    assert await listed(server.stub) == {"daily": ("shop", False), "weekly": ("shop", True)}


async def test_time_since_when_it_has_vanished_stays(server: ServerUnderTest) -> None:
    await declare(server.stub, "shop", "weekly")
    await declare(server.stub, "shop")
    one = (await server.stub.GetSchedule(pb.GetScheduleRequest(name="weekly"))).schedule
    await declare(server.stub, "shop")
    assert (await server.stub.GetSchedule(pb.GetScheduleRequest(name="weekly"))).schedule == one


async def test_last_schedule_of_an_application_can_vanish(server: ServerUnderTest) -> None:
    await declare(server.stub, "shop", "daily")
    assert await declare(server.stub, "shop") == ["daily"]


async def test_schedule_that_is_declared_again_is_no_longer_marked(server: ServerUnderTest) -> None:
    await declare(server.stub, "shop", "daily")
    await declare(server.stub, "shop")
    assert await declare(server.stub, "shop", "daily") == []
    assert await listed(server.stub) == {"daily": ("shop", False)}


async def test_schedules_of_other_applications_and_of_operators_are_left_alone(
    server: ServerUnderTest,
) -> None:
    await create(server.stub, "by hand")
    await declare(server.stub, "billing", "invoices")
    assert await declare(server.stub, "shop", "daily") == []
    assert await listed(server.stub) == {
        "by hand": ("", False),
        "invoices": ("billing", False),
        "daily": ("shop", False),
    }


async def test_schedule_belongs_to_the_application_that_declared_it_last(server: ServerUnderTest) -> None:
    await declare(server.stub, "shop", "daily")
    await declare(server.stub, "shop.app", "daily")
    assert await declare(server.stub, "shop") == []
    assert await listed(server.stub) == {"daily": ("shop.app", False)}


async def test_application_of_another_user_cannot_mark_or_take_a_schedule(guarded: ServerUnderTest) -> None:
    mine, other = caller(guarded.channel, "shop"), caller(guarded.channel, "worker")
    await declare(mine, "app", "daily")
    request = pb.DeclareSchedulesRequest(application="app", names=["weekly"])
    assert list((await other.DeclareSchedules(request)).vanished) == []
    request = pb.DeclareSchedulesRequest(application="theirs", names=["daily"])
    await other.DeclareSchedules(request)
    assert await listed(caller(guarded.channel, "viewer")) == {"daily": ("app", False)}
    assert await declare(mine, "app") == ["daily"]


async def test_viewer_declares_nothing(guarded: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await declare(caller(guarded.channel, "viewer"), "app")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_mark_does_not_disturb_a_change_of_the_definition(server: ServerUnderTest) -> None:
    await declare(server.stub, "shop", "daily")
    await declare(server.stub, "shop")
    one = (await server.stub.GetSchedule(pb.GetScheduleRequest(name="daily"))).schedule
    change = pb.UpdateScheduleRequest(schedule_id=one.schedule_id, priority=3)
    changed = (await server.stub.UpdateSchedule(change)).schedule
    assert (changed.declared_by, changed.HasField("vanished_at"), changed.priority) == ("shop", True, 3)


async def test_workers_that_start_together_do_not_lock_each_other_out(server: ServerUnderTest) -> None:
    names = [f"schedule {number}" for number in range(20)]
    await create(server.stub, *names)
    orders = [names[start:] + names[:start] for start in range(20)]
    requests = [
        pb.DeclareSchedulesRequest(application=f"app {place % 2}", names=order)
        for place, order in enumerate(orders)
    ]
    await asyncio.gather(*(server.stub.DeclareSchedules(request) for request in requests))
    assert len({application for application, _ in (await listed(server.stub)).values()}) == 1


@each_row(
    "application, names, text",
    [
        ("", [], "application is empty"),
        ("a" * 256, [], "application"),
        ("a\0b", [], "application"),
        ("shop", ["a"] * 1001, "1000 are allowed"),
        ("shop", ["a\0b"], "name"),
    ],
)
async def test_declaration_that_cannot_be_meant_is_refused(
    server: ServerUnderTest, application: str, names: list[str], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.DeclareSchedules(pb.DeclareSchedulesRequest(application=application, names=names))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")
