"""`set_topic` and `topic_settings`: how jobs run, who decides it, and how it is handed back."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import pytest

import pulse
from pulse.topics import entries_message
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

MINUTE = timedelta(minutes=1)
BACKOFF = pulse.Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0.1)
A_DAY_OF_RETRIES = pulse.Backoff(first=timedelta(seconds=1), factor=2, longest=timedelta(hours=2), jitter=0.2)
OF_SERVER = {
    "max_attempts": 25,
    "backoff": A_DAY_OF_RETRIES,
    "max_crashes": 5,
    "keep_completed": timedelta(days=7),
    "keep_canceled": timedelta(days=7),
    "keep_dead_lettered": timedelta(days=30),
}


async def declare(server: ServerUnderTest, worker: str = "w1", **entries: Any) -> None:
    declared = pb.DeclaredTopic(topic="mail", entries=entries_message(entries))
    await server.stub.DeclareTopics(pb.DeclareTopicsRequest(worker_id=worker, topics=[declared]))


async def test_settings_of_the_server_are_in_force_for_all_others(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        found = await p.all_topic_settings()
    assert (len(found), found.server) == (0, OF_SERVER)
    other = found.of("other")
    assert (other.in_force, set(other.decided_by.values()), other.has_own) == (OF_SERVER, {"server"}, False)


async def test_operator_wins_over_the_code_until_each_entry_is_handed_back(server: ServerUnderTest) -> None:
    await declare(server, max_attempts=8, attempt_timeout=MINUTE)
    async with pulse.Pulse(server.address) as p:
        settings = await p.set_topic("mail", max_attempts=40, backoff=BACKOFF)
        assert settings.operator == {"backoff": BACKOFF, "max_attempts": 40}
        assert settings.declared == {"max_attempts": 8, "attempt_timeout": MINUTE}
        own = {"backoff": BACKOFF, "max_attempts": 40, "attempt_timeout": MINUTE}
        assert settings.in_force == OF_SERVER | own
        deciding = {name: settings.decided_by[name] for name in (*own, "max_crashes")}
        assert deciding == {
            "backoff": "operator",
            "max_attempts": "operator",
            "attempt_timeout": "code",
            "max_crashes": "server",
        }
        assert settings.declared_by == "w1"
        assert settings.declared_at is not None
        assert settings.set_at is not None

        settings = await p.set_topic("mail", max_attempts="default")
        assert (settings.operator, settings.in_force["max_attempts"]) == ({"backoff": BACKOFF}, 8)
        settings = await p.reset_topic("mail", "backoff", "attempt_timeout")
        assert (settings.operator, settings.set_at) == ({}, None)
        assert settings.in_force["backoff"] == A_DAY_OF_RETRIES
        assert settings.in_force["attempt_timeout"] == MINUTE
        assert settings == await p.topic_settings("mail")


async def test_time_limit_and_crashes_are_set_beside_the_retention(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        settings = await p.set_topic("mail", attempt_timeout=MINUTE, max_crashes=2, keep_completed="forever")
        own = {"attempt_timeout": MINUTE, "max_crashes": 2, "keep_completed": "forever"}
        assert settings.operator == own
        assert settings.in_force == OF_SERVER | own
        settings = await p.set_topic("mail", keep_completed="default")
        assert settings.in_force["keep_completed"] == timedelta(days=7)
        assert settings.before == {"keep_completed": "forever"}
        assert settings.shorter_from is not None
        settings = await p.reset_topic("mail")
        assert (settings.operator, settings.has_own) == ({}, True), "the longer time still counts"
        settings = await p.set_topic("mail", keep_completed="forever")
        assert (settings.before, settings.shorter_from) == ({}, None)
        assert settings.operator == {"keep_completed": "forever"}


async def test_blocking_client_has_the_same(server: ServerUnderTest) -> None:
    with pulse.SyncPulse(server.address) as p:
        settings = await asyncio.to_thread(p.set_topic, "mail", max_attempts=3)
        assert settings.in_force["max_attempts"] == 3
        assert [one.topic for one in await asyncio.to_thread(p.all_topic_settings)] == ["mail"]
        assert await asyncio.to_thread(p.topic_settings, "mail") == settings
        assert not (await asyncio.to_thread(p.reset_topic, "mail")).has_own


async def test_jobs_get_the_attempts_of_their_topic(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        await p.set_topic("mail", max_attempts=3)
        await server.app.topics.settings.loop.wait_for_ticks(2)
        job = await p.get_job((await p.enqueue("mail")).id)
    assert (job.max_attempts, job.snoozes, job.crashes, job.start_by) == (3, 0, 0, None)


async def test_operator_wins_over_the_attempts_of_a_handler_and_a_job_over_both(
    server: ServerUnderTest,
) -> None:
    async with pulse.Pulse(server.address) as p:
        mail = p.register("mail", lambda: None, max_attempts=8)
        await p.schedule("mail", None, pulse.After(60 * MINUTE), name="later")

        async def attempts() -> set[int]:
            """Of jobs that this client stores in all its ways."""
            await server.app.topics.settings.loop.wait_for_ticks(2)
            handles = [
                await mail.enqueue(),
                await p.enqueue("mail"),
                *await mail.enqueue_many([None, mail.with_options(None, priority=1)]),
                *await p.enqueue_many("mail", [None]),
            ]
            stored = {(await p.get_job(handle.id)).max_attempts for handle in handles}
            fired = (await p.get_job((await p.schedules.fire("later")).id)).max_attempts
            return stored | {fired, (await p.schedules.get("later")).max_attempts}

        assert await attempts() == {8}
        await p.set_topic("mail", max_attempts=40)
        assert await attempts() == {40}
        own = [
            await mail.options(max_attempts=3).enqueue(),
            *await mail.enqueue_many([mail.with_options(None, max_attempts=3)]),
        ]
        assert {(await p.get_job(handle.id)).max_attempts for handle in own} == {3}
        await p.set_topic("mail", max_attempts="default")
        assert await attempts() == {8}


@each_row(
    "change, sentence",
    [
        ({"max_attempts": 0}, "max_attempts is 0: it must be from 1 to 1,000"),
        ({"max_attempts": "many"}, "max_attempts is 'many': it must be a whole number"),
        ({"max_attempts": None}, "max_attempts is None: it must be a whole number"),
        ({"max_crashes": 10**12}, "max_crashes is 1000000000000: it must be"),
        ({"backoff": MINUTE}, "it must be such as pulse.Backoff"),
        ({"attempt_timeout": 60}, r"attempt_timeout has to be a timedelta: write timedelta\(seconds=60\)"),
        ({"attempt_timeout": timedelta(0)}, "it must be above zero"),
        ({"keep_completed": timedelta(seconds=5)}, "keep_completed is 5s, below a minute"),
        ({"speed": 3}, "'speed' is no setting of a topic"),
        ({"speed": "default"}, "'speed' is no setting of a topic"),
        ({}, "Give a setting, such as running=5"),
    ],
)
async def test_setting_that_cannot_be_meant_is_refused_with_a_sentence(
    server: ServerUnderTest, change: dict[str, Any], sentence: str
) -> None:
    async with pulse.Pulse(server.address) as p:
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            await p.set_topic("mail", **change)
        assert not len(await p.all_topic_settings())


async def test_bounds_are_the_same_where_the_server_checks_them(server: ServerUnderTest) -> None:
    for entries, sentence in (
        (pb.TopicEntries(running=0), "running is 0: it must be from 1 to 1,000,000."),
        (pb.TopicEntries(ordered=True, per_lane=2), "ordered needs one job of a lane at a time"),
        (pb.TopicEntries(pool="gpu"), "pool has neither running nor a rate to share"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=re.escape(sentence)):
            await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=entries))
