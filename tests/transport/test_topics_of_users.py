"""What the worker role may do to topics: only to those of which the user has a worker connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role, User
from tests.eventually import PROMPT_SECONDS
from tests.transport.authorized import PASSWORD, answer, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
INVALID = grpc.StatusCode.INVALID_ARGUMENT
DENIED = grpc.StatusCode.PERMISSION_DENIED
OK = grpc.StatusCode.OK
USERS = (
    User("shop", PASSWORD, Role.WORKER),
    User("other", PASSWORD, Role.WORKER),
    User("operator", PASSWORD, Role.OPERATOR),
)


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=USERS) as running:
        yield running


def worker_of(server: ServerUnderTest, user: str, topic: str, **request: Any) -> StreamingWorker:
    return StreamingWorker(caller(server.channel, user), "w1", topics=[topic], **request)


async def declare(
    server: ServerUnderTest, user: str, topic: str, limits: pb.TopicEntries | None = None, **runs: Any
) -> tuple[grpc.StatusCode, str]:
    entries = pb.TopicEntries(**runs)
    entries.MergeFrom(limits or pb.TopicEntries())
    declared = [pb.DeclaredTopic(topic=topic, entries=entries)]
    request = pb.DeclareTopicsRequest(worker_id="w1", topics=declared)
    return await answer(caller(server.channel, user), "DeclareTopics", request)


async def hold(
    server: ServerUnderTest, user: str, topic: str, span: timedelta
) -> tuple[grpc.StatusCode, str]:
    length = Duration()
    length.FromTimedelta(span)
    request = pb.HoldTopicRequest(topic=topic, duration=length)
    return await answer(caller(server.channel, user), "HoldTopic", request)


async def limits_of(server: ServerUnderTest, topic: str) -> pb.TopicLimits | None:
    request = pb.ListLimitsRequest(topics=[topic])
    found = await caller(server.channel, "operator").ListLimits(request)
    return found.limits[0] if found.limits else None


async def set_limit(server: ServerUnderTest, topic: str, **limits: Any) -> None:
    request = pb.SetTopicRequest(topic=topic, entries=pb.TopicEntries(**limits))
    await caller(server.channel, "operator").SetTopic(request)


async def test_declaration_for_a_topic_without_a_worker_of_the_user_is_refused(
    server: ServerUnderTest,
) -> None:
    async with worker_of(server, "shop", "crm"), worker_of(server, "other", "mail"):
        code, sentence = await declare(server, "other", "crm", pb.TopicEntries(running=1), max_attempts=1)

    assert code is UNAVAILABLE
    assert "No worker of this user that takes 'crm' is connected" in sentence
    assert await limits_of(server, "crm") is None
    found = await caller(server.channel, "operator").ListTopicSettings(pb.ListTopicSettingsRequest())
    assert not found.settings


async def test_worker_that_is_connected_without_jobs_declares_its_limits(server: ServerUnderTest) -> None:
    job_id = (await caller(server.channel, "operator").SubmitJob(pb.SubmitJobRequest(topic="crm"))).job_id
    async with worker_of(server, "shop", "crm", idle=True):
        assert await declare(server, "shop", "crm", pb.TopicEntries(running=3)) == (OK, "")
        async with worker_of(server, "shop", "crm") as worker:  # replaces the idle one
            (job,) = await worker.take(1)

    assert job.job_id == job_id
    held = await limits_of(server, "crm")
    assert held is not None
    assert held.in_force.running == 3


async def test_worker_at_another_server_counts_once_that_is_recorded(
    server: ServerUnderTest, database_dsn: str
) -> None:
    async with server_under_test(database_dsn, users=USERS) as second, worker_of(second, "shop", "crm"):
        await second.app.views.servers.record()
        assert await declare(server, "shop", "crm", pb.TopicEntries(running=3)) == (OK, "")
        code, _ = await declare(server, "other", "crm", pb.TopicEntries(running=1))

    assert code is UNAVAILABLE


async def test_limit_stands_only_while_its_worker_takes_the_topic(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.topics.rules.GRACE", timedelta(0))
    async with worker_of(server, "other", "crm"):
        await server.app.views.servers.record()
        await declare(server, "other", "crm", pb.TopicEntries(running=1))
    async with worker_of(server, "other", "mail"), worker_of(server, "shop", "crm"):
        await server.app.views.servers.record()
        await server.app.topics.settings.apply()
        assert await declare(server, "shop", "crm", pb.TopicEntries(running=20)) == (OK, "")
        held = await limits_of(server, "crm")

    assert held is not None
    assert held.in_force.running == 20


async def test_declared_pool_cannot_have_the_name_of_another_topic_with_limits(
    server: ServerUnderTest,
) -> None:
    await set_limit(server, "crm", running=10)
    async with worker_of(server, "other", "mail"):
        code, sentence = await declare(server, "other", "mail", pb.TopicEntries(running=1, pool="crm"))

    assert code is INVALID
    assert "'crm', the name of another topic that has limits" in sentence


async def test_worker_holds_topics_that_its_user_serves_for_a_day_at_most(server: ServerUnderTest) -> None:
    await set_limit(server, "crm", running=10)
    async with worker_of(server, "shop", "crm"):
        assert await hold(server, "shop", "crm", timedelta(hours=2)) == (OK, "")
        code, sentence = await hold(server, "shop", "crm", timedelta(days=2))
        assert (code, "for no longer" in sentence) == (INVALID, True)
        code, sentence = await hold(server, "other", "crm", timedelta(hours=1))
        assert (code, "No worker of this user" in sentence) == (UNAVAILABLE, True)
        assert (await hold(server, "operator", "crm", timedelta(days=2)))[0] is OK


async def test_hold_of_an_operator_is_ended_by_operators_alone(server: ServerUnderTest) -> None:
    await set_limit(server, "crm", running=10)
    async with worker_of(server, "shop", "crm"):
        await hold(server, "operator", "crm", timedelta(hours=1))
        await hold(server, "shop", "crm", timedelta(hours=3))
        code, sentence = await hold(server, "shop", "crm", timedelta(0))
        assert (code, "An operator holds 'crm' until" in sentence) == (DENIED, True)
        held = await limits_of(server, "crm")
        assert held is not None
        assert held.HasField("held_until")
        await hold(server, "operator", "crm", timedelta(0))
        assert not (await limits_of(server, "crm")).HasField("held_until")  # type: ignore[union-attr]
        await hold(server, "shop", "crm", timedelta(hours=3))
        assert await hold(server, "shop", "crm", timedelta(0)) == (OK, "")


async def test_what_is_put_in_force_is_logged_with_user_and_numbers(
    server: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with worker_of(server, "shop", "crm"):
        await server.app.views.servers.record()
        await declare(server, "shop", "crm", pb.TopicEntries(running=3), max_attempts=7)
        await set_limit(server, "crm", running=5)

    events = [
        vars(record) for record in caplog.records if record.message in ("limits_changed", "runs_declared")
    ]
    assert [(each["before"], each["after"], each.get("by") or each["worker_id"]) for each in events] == [
        ({}, {"max_attempts": "7"}, "shop:w1"),
        ({}, {"running": "3"}, "shop:w1"),
        ({"running": "3"}, {"running": "5"}, "operator"),
    ]


async def test_worker_of_the_sdk_has_its_limits_before_its_first_job(server: ServerUnderTest) -> None:
    limits_seen: asyncio.Queue[int] = asyncio.Queue()
    async with pulse.Pulse(server.address, user="shop", password=PASSWORD) as p:

        async def sync(_: pulse.Context) -> None:
            held = await limits_of(server, "crm")
            await limits_seen.put(held.in_force.running if held is not None else 0)

        p.register("crm", sync, running=3)
        await p.enqueue("crm")
        working = asyncio.create_task(p.run(handle_signals=False))
        async with asyncio.timeout(PROMPT_SECONDS):
            assert await limits_seen.get() == 3
        working.cancel()
        await asyncio.wait({working})
