"""Limits over gRPC: declared by workers, overridden by operators, shown, held, refused with a sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

MINUTE = Duration(seconds=60)
RATE = pb.StartRate(starts=100, period=MINUTE)


async def declare(stub: Any, worker_id: str = "worker-1", **workflows: pb.TopicEntries) -> None:
    topics = [pb.DeclaredTopic(topic=topic, entries=limits) for topic, limits in workflows.items()]
    await stub.DeclareTopics(pb.DeclareTopicsRequest(worker_id=worker_id, topics=topics))


async def override(stub: Any, *reset: str, **entries: Any) -> pb.TopicSettings:
    limits = pb.TopicEntries(**entries) if entries else None
    request = pb.SetTopicRequest(topic="mail", entries=limits, reset=reset)
    return (await stub.SetTopic(request)).settings  # type: ignore[no-any-return]


def limits_in_force(settings: pb.TopicSettings) -> pb.TopicEntries:
    """Without what the settings of the server have for every topic."""
    limits = pb.TopicEntries()
    limits.CopyFrom(settings.in_force)
    for name, by in settings.decided_by.items():
        if by == "server":
            limits.ClearField(name)  # type: ignore[arg-type]
    return limits


async def limits(stub: Any, **fields: Any) -> list[pb.TopicLimits]:
    return list((await stub.ListLimits(pb.ListLimitsRequest(**fields))).limits)


async def test_declared_limit_is_in_force_at_once(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=pb.TopicEntries(running=10, rate=RATE), sms=pb.TopicEntries())
    (known,) = await limits(server.stub)
    assert (known.topic, known.in_force) == ("mail", pb.TopicEntries(running=10, rate=RATE))
    (settings,) = (await server.stub.ListTopicSettings(pb.ListTopicSettingsRequest())).settings
    assert settings.declared == known.in_force
    assert not settings.HasField("operator")
    assert (settings.declared_by, settings.HasField("declared_at")) == ("worker-1", True)
    assert (known.running, known.HasField("held_until")) == (0, False)


@asynccontextmanager
async def job_locked(server: ServerUnderTest, dsn: str) -> AsyncIterator[int]:
    """A running job of the topic mail is locked, as by ctx.complete in an open transaction."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "shop"})
    async with server.worker() as worker, connection.transaction():
        await server.submit()
        await worker.take_one()
        await connection.execute("SELECT FROM pulse.jobs FOR UPDATE")
        yield connection.get_server_pid()
    await connection.close()


async def test_declared_limit_is_tried_again_while_a_transaction_has_a_job_locked(
    server: ServerUnderTest, database_dsn: str
) -> None:
    async with job_locked(server, database_dsn) as pid:
        with pytest.raises(
            grpc.aio.AioRpcError, match=rf"accepted, and in force once pid {pid} \(shop"
        ) as refused:
            await declare(server.stub, mail=pb.TopicEntries(running=10))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await declare(server.stub, mail=pb.TopicEntries(running=10))
    assert [known.topic for known in await limits(server.stub)] == ["mail"]


async def test_pending_limit_is_shown_with_what_it_waits_for(
    server: ServerUnderTest, database_dsn: str
) -> None:
    async with job_locked(server, database_dsn) as pid:
        settings = await override(server.stub, running=5)

        assert settings.operator == pb.TopicEntries(running=5)
        assert settings.pending.startswith(f"in force once pid {pid} (shop, user ")
        (known,) = await limits(server.stub)
        assert (known.topic, known.pending) == ("mail", settings.pending)
        assert known.in_force == pb.TopicEntries(), "nothing limits it meanwhile"
        (explained,) = (await server.stub.Explain(pb.ExplainRequest(topic="mail"))).explanations
        assert f"The limits of the topic were changed: accepted, {known.pending}." in explained.sentence
        (entry, *_) = (await server.stub.ListAudit(pb.ListAuditRequest())).entries
        changes = json.loads(entry.changes_json)
        assert changes["running"]["new"] == 5
        assert changes["pending"]["new"] == settings.pending
    await server.app.topics.settings.apply()
    (known,) = await limits(server.stub)
    assert (known.in_force, known.pending) == (pb.TopicEntries(running=5), "")
    assert not (await override(server.stub, running=6)).pending


async def test_enqueue_in_an_open_transaction_delays_no_limit(
    server: ServerUnderTest, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    async with connection.transaction():
        await connection.execute("SELECT pulse.enqueue('mail', '1'::bytea)")
        assert not (await override(server.stub, running=5)).pending
        assert not (await override(server.stub, "running")).pending
        assert await limits(server.stub) == []
    await connection.close()


async def test_operator_wins_until_they_return_the_entry(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=pb.TopicEntries(running=10))
    settings = await override(server.stub, running=5, per_lane=1)
    assert settings.operator == pb.TopicEntries(running=5, per_lane=1)
    assert settings.declared == pb.TopicEntries(running=10)
    assert limits_in_force(settings) == pb.TopicEntries(running=5, per_lane=1, turns=True)
    assert {settings.decided_by[name] for name in ("running", "per_lane", "turns")} == {"operator"}
    assert settings.HasField("set_at")
    (known,) = await limits(server.stub, topics=["mail"])
    assert known.in_force == limits_in_force(settings)

    settings = await override(server.stub, "running", "per_lane")
    assert not settings.HasField("operator")
    assert not settings.HasField("set_at")
    assert limits_in_force(settings) == pb.TopicEntries(running=10)
    assert settings.decided_by["running"] == "code"
    (known,) = await limits(server.stub)
    assert known.in_force == pb.TopicEntries(running=10)


async def test_numbers_of_a_pool_are_shown_for_each_of_its_topics(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=pb.TopicEntries(running=10, pool="gpu"))
    await declare(server.stub, "w2", sms=pb.TopicEntries(running=3, rate=RATE, pool="gpu"))
    (settings, _) = (await server.stub.ListTopicSettings(pb.ListTopicSettingsRequest())).settings
    assert limits_in_force(settings) == pb.TopicEntries(running=3, rate=RATE, pool="gpu")
    assert [settings.decided_by[name] for name in ("running", "rate", "pool")] == ["pool", "pool", "code"]


async def test_topic_with_a_limit_alone_is_listed_with_the_settings(server: ServerUnderTest) -> None:
    await override(server.stub, running=5)
    (settings,) = (await server.stub.ListTopicSettings(pb.ListTopicSettingsRequest())).settings
    assert (settings.topic, limits_in_force(settings)) == ("mail", pb.TopicEntries(running=5))
    assert not settings.HasField("declared")


async def test_strictest_of_two_workers_holds_and_both_are_shown(server: ServerUnderTest) -> None:
    await declare(server.stub, "one", mail=pb.TopicEntries(running=10))
    await declare(server.stub, "other", mail=pb.TopicEntries(running=20))
    (known,) = await limits(server.stub)
    assert known.in_force == pb.TopicEntries(running=10)
    (settings,) = (await server.stub.ListTopicSettings(pb.ListTopicSettingsRequest())).settings
    assert [(each.worker_id, each.entries.running, each.workers) for each in settings.differing] == [
        ("one", 10, 1),
        ("other", 20, 1),
    ]


async def test_limits_are_listed_in_pages(server: ServerUnderTest) -> None:
    await declare(server.stub, **{name: pb.TopicEntries(running=1) for name in "abc"})
    first = await server.stub.ListLimits(pb.ListLimitsRequest(page_size=2))
    rest = await server.stub.ListLimits(pb.ListLimitsRequest(page_size=2, page_token=first.next_page_token))
    assert [each.topic for each in (*first.limits, *rest.limits)] == ["a", "b", "c"]
    assert rest.next_page_token == ""


async def test_topic_is_held_and_let_go(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=pb.TopicEntries(running=10))
    await server.stub.HoldTopic(pb.HoldTopicRequest(topic="mail", duration=MINUTE))
    (known,) = await limits(server.stub)
    assert known.HasField("held_until")
    await server.stub.HoldTopic(pb.HoldTopicRequest(topic="mail", duration=Duration()))
    (known,) = await limits(server.stub)
    assert not known.HasField("held_until")

    until = Timestamp()
    until.GetCurrentTime()
    until.FromDatetime(until.ToDatetime() + timedelta(minutes=5))
    await server.stub.HoldTopic(pb.HoldTopicRequest(topic="mail", until=until))
    (known,) = await limits(server.stub)
    assert abs(known.held_until.seconds - until.seconds) <= 5


async def test_lane_has_its_own_weight_and_limit(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=pb.TopicEntries(per_lane=1))
    request = pb.SetLaneRequest(topic="mail", lane="customer-42", weight=3, limit=5)
    await server.stub.SetLane(request)
    (lane,) = (await server.stub.ListLanes(pb.ListLanesRequest(topic="mail"))).lanes
    assert (lane.lane, lane.weight, lane.limit) == ("customer-42", 3, 5)


async def test_roles_may_do_what_is_theirs(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        worker, viewer = caller(server.channel, "worker"), caller(server.channel, "viewer")
        async with StreamingWorker(worker, "w1"):
            await declare(worker, mail=pb.TopicEntries(running=10))
            await worker.HoldTopic(pb.HoldTopicRequest(topic="mail", duration=MINUTE))
        assert len(await limits(viewer)) == 1
        for call in (
            override(worker, running=5),
            override(viewer, running=5),
            viewer.HoldTopic(pb.HoldTopicRequest(topic="mail", duration=MINUTE)),
            worker.SetLane(pb.SetLaneRequest(topic="mail", lane="a")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_declaration_reaches_the_other_servers(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as one, server_under_test(database_dsn) as other:
        await declare(one.stub, mail=pb.TopicEntries(running=10))
        await other.app.topics.settings.loop.wait_for_ticks(2)
        await declare(other.stub, "worker-2", mail=pb.TopicEntries())
        (known,) = await limits(other.stub)
        assert known.in_force == pb.TopicEntries(running=10)


@each_row(
    "method, request_, text",
    [
        ("HoldTopic", pb.HoldTopicRequest(topic="plain", duration=MINUTE), "has no limits"),
        ("SetLane", pb.SetLaneRequest(topic="plain", lane="a", limit=1), "has no lanes"),
        ("SetLane", pb.SetLaneRequest(topic="limited", lane="a"), "has no lanes"),
        ("SetLane", pb.SetLaneRequest(topic="fair", lane="a", limit=2), "set per_lane first"),
        ("SetLane", pb.SetLaneRequest(topic="ordered", lane="a", limit=2), "run in order"),
    ],
)
async def test_call_that_the_limits_do_not_permit_is_refused_with_the_reason(
    server: ServerUnderTest, method: str, request_: Any, text: str
) -> None:
    await declare(
        server.stub,
        limited=pb.TopicEntries(running=1),
        fair=pb.TopicEntries(turns=True),
        ordered=pb.TopicEntries(ordered=True),
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await getattr(server.stub, method)(request_)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


async def test_callers_share_one_list_of_lanes_until_a_lane_is_set(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", timedelta(minutes=1))
    await override(server.stub, turns=True)
    asked = pb.ListLanesRequest(topic="mail")
    await asyncio.gather(*(server.stub.ListLanes(asked) for _ in range(20)))
    times = server.app.metrics.statement_time.values
    assert sum(times["list_lanes",].counts) == 1
    await server.stub.SetLane(pb.SetLaneRequest(topic="mail", lane="a", weight=3))
    (lane,) = (await server.stub.ListLanes(asked)).lanes
    assert (lane.lane, lane.weight) == ("a", 3)
