"""A declaration replaces what the same user declared, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role, User
from tests.transport.authorized import PASSWORD, USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

HOURLY = Duration(seconds=3600)
ALL_USERS = (*USERS, User("shop", PASSWORD, Role.PRODUCER))


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=ALL_USERS) as server:
        yield server


async def declare(server: ServerUnderTest, user: str, topic: str = "mail") -> pb.ScheduleView:
    request = pb.CreateScheduleRequest(name="nightly", topic=topic, every=HOURLY, replace=True)
    answer = await caller(server.channel, user).CreateSchedule(request)
    view: pb.ScheduleView = answer.schedule
    return view


async def stored(server: ServerUnderTest) -> Any:
    row = await server.table.connection.fetchrow("SELECT topic, declared_by FROM pulse.schedules")
    return tuple(row) if row is not None else None


@pytest.mark.parametrize("owner", ["admin", "operator", "shop"])
@pytest.mark.parametrize("other", ["producer", "worker"])
async def test_declaration_does_not_replace_what_another_user_declared(
    server: ServerUnderTest, owner: str, other: str
) -> None:
    await declare(server, owner)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await declare(server, other, "junk")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    sentence = refused.value.details() or ""
    assert f"'nightly' was declared by the user {owner!r}" in sentence
    assert "An operator may replace it" in sentence
    assert await stored(server) == ("mail", owner)


async def test_same_declaration_by_another_user_is_the_same_schedule(server: ServerUnderTest) -> None:
    first = await declare(server, "shop")
    assert await declare(server, "worker") == first
    assert await stored(server) == ("mail", "shop")


@pytest.mark.parametrize("owner", ["shop", "worker"])
async def test_user_replaces_its_own_declaration(server: ServerUnderTest, owner: str) -> None:
    first = await declare(server, owner)
    assert (await declare(server, owner, "other")).schedule_id == first.schedule_id
    assert await stored(server) == ("other", owner)


@pytest.mark.parametrize("taker", ["operator", "admin"])
async def test_operator_takes_a_schedule_over(server: ServerUnderTest, taker: str) -> None:
    await declare(server, "shop")
    await declare(server, taker, "other")
    assert await stored(server) == ("other", taker)
    with pytest.raises(grpc.aio.AioRpcError):
        await declare(server, "shop")


async def test_update_by_an_operator_leaves_the_schedule_to_its_user(server: ServerUnderTest) -> None:
    made = await declare(server, "shop")
    change = pb.UpdateScheduleRequest(schedule_id=made.schedule_id, topic="other")
    await caller(server.channel, "operator").UpdateSchedule(change)
    assert await stored(server) == ("other", "shop")
    await declare(server, "shop")
    assert await stored(server) == ("other", "shop")


async def test_schedule_of_an_open_server_belongs_to_the_first_user_that_declares_it_otherwise(
    database_dsn: str, server: ServerUnderTest
) -> None:
    request = pb.CreateScheduleRequest(name="nightly", topic="mail", every=HOURLY, replace=True)
    async with server_under_test(database_dsn) as open_server:
        await open_server.stub.CreateSchedule(request)
        assert await stored(server) == ("mail", None)
        request.topic = "open"
        await open_server.stub.CreateSchedule(request)
    await declare(server, "shop", "other")
    assert await stored(server) == ("other", "shop")


async def test_audit_shows_what_an_operator_set_and_what_the_code_declares_in_its_place(
    server: ServerUnderTest,
) -> None:
    made = await declare(server, "shop")
    operator = caller(server.channel, "operator")

    async def changes(method: str) -> list[tuple[str, Any]]:
        request = pb.ListAuditRequest(method=method, id=made.schedule_id)
        found = (await operator.ListAudit(request)).entries
        return [(entry.user, json.loads(entry.changes_json)) for entry in found]

    change = pb.UpdateScheduleRequest(schedule_id=made.schedule_id, topic="urgent", payload=b"secret")
    view = (await operator.UpdateSchedule(change)).schedule
    assert [(each.entry, each.set_by) for each in view.overrides] == [
        ("topic", "operator"),
        ("payload", "operator"),
    ]
    ((user, updated),) = await changes("UpdateSchedule")
    assert user == "operator"
    assert updated["topic"] == {"old": "mail", "new": "urgent"}
    assert updated["declared.topic"] == {"old": None, "new": "mail"}
    assert updated["declared.payload"] == {"old": None, "new": "0 bytes"}

    await declare(server, "shop", "post")
    (user, redeclared), _ = await changes("CreateSchedule")
    assert (user, redeclared) == ("shop", {"declared.topic": {"old": "mail", "new": "post"}})

    back = pb.UpdateScheduleRequest(schedule_id=made.schedule_id, returned=["topic", "payload"])
    await operator.UpdateSchedule(back)
    (_, handed_back), _ = await changes("UpdateSchedule")
    assert handed_back["topic"] == {"old": "urgent", "new": "post"}
    assert handed_back["declared.topic"] == {"old": "post", "new": None}
