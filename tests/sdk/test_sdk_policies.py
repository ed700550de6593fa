"""`set_topic_policy` and `topic_policies`: how jobs run, who decides it, and how it is handed back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

MINUTE = timedelta(minutes=1)
BACKOFF = pulse.Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0.1)
A_DAY_OF_RETRIES = pulse.Backoff(first=timedelta(seconds=1), factor=2, longest=timedelta(hours=2), jitter=0.2)
NOTHING = pulse.RunPolicy()


async def declare(server: ServerUnderTest, worker: str = "w1", **run: Any) -> None:
    policy = pb.DeclaredPolicy(topic="mail", run=pb.RunPolicy(**run))
    await server.stub.DeclareTopicPolicies(
        pb.DeclareTopicPoliciesRequest(worker_id=worker, policies=[policy])
    )


async def test_settings_of_the_server_are_in_force_for_all_others(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        found = await p.topic_policies()
    assert (len(found), found.server.topic) == (0, "")
    assert found.server.effective == pulse.RunPolicy(A_DAY_OF_RETRIES, max_attempts=25, max_crashes=5)


async def test_operator_wins_over_the_code_until_each_entry_is_handed_back(server: ServerUnderTest) -> None:
    await declare(server, max_attempts=8, timeout=Duration(seconds=60))
    async with pulse.Pulse(server.address) as p:
        policy = await p.set_topic_policy("mail", max_attempts=40, backoff=BACKOFF)
        assert policy.run == pulse.RunPolicy(backoff=BACKOFF, max_attempts=40)
        assert policy.declared == pulse.RunPolicy(max_attempts=8, timeout=MINUTE)
        assert policy.effective == pulse.RunPolicy(BACKOFF, 40, MINUTE, 5)
        assert policy.declared_by == "w1"
        assert policy.declared_at is not None
        assert policy.set_at is not None

        policy = await p.set_topic_policy("mail", max_attempts="default")
        assert (policy.run, policy.effective.max_attempts) == (pulse.RunPolicy(backoff=BACKOFF), 8)
        policy = await p.set_topic_policy("mail", backoff="default", attempt_timeout="default")
        assert policy.run == NOTHING
        assert (policy.effective.backoff, policy.effective.timeout) == (A_DAY_OF_RETRIES, MINUTE)
        assert await p.topic_policies(names=["mail"])


async def test_time_limit_and_crashes_are_set_beside_the_retention(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        policy = await p.set_topic_policy(
            "mail", attempt_timeout=MINUTE, max_crashes=2, keep_completed="forever"
        )
        assert policy.effective == pulse.RunPolicy(A_DAY_OF_RETRIES, 25, MINUTE, 2)
        assert policy.keep_completed == "forever"
        assert not policy.keeps_by_default
        policy = await p.set_topic_policy("mail", keep_completed="default")
        assert policy.keep_completed == "default"
        assert policy.keep_before == {"COMPLETED": "forever"}
        assert policy.shorter_from is not None
        assert not policy.keeps_by_default, "the longer time still counts"
        policy = await p.set_topic_policy("mail", keep_completed="forever")
        assert (policy.keep_before, policy.shorter_from) == ({}, None)
        assert policy.run == pulse.RunPolicy(timeout=MINUTE, max_crashes=2)


async def test_blocking_client_has_the_same(server: ServerUnderTest) -> None:
    with pulse.SyncPulse(server.address) as p:
        policy = await asyncio.to_thread(p.set_topic_policy, "mail", max_attempts=3)
        assert policy.effective.max_attempts == 3
        assert [one.topic for one in await asyncio.to_thread(p.topic_policies)] == ["mail"]


async def test_jobs_get_the_attempts_of_the_policy(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        await p.set_topic_policy("mail", max_attempts=3)
        await server.app.policies.run.loop.wait_for_ticks(2)
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
            await server.app.policies.run.loop.wait_for_ticks(2)
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
        await p.set_topic_policy("mail", max_attempts=40)
        assert await attempts() == {40}
        own = [
            await mail.options(max_attempts=3).enqueue(),
            *await mail.enqueue_many([mail.with_options(None, max_attempts=3)]),
        ]
        assert {(await p.get_job(handle.id)).max_attempts for handle in own} == {3}
        await p.set_topic_policy("mail", max_attempts="default")
        assert await attempts() == {8}


@each_row(
    "change, sentence",
    [
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": "many"}, "max_attempts has to be a whole number or \"default\", but 'many'"),
        ({"max_attempts": True}, "max_attempts has to be a whole number"),
        ({"max_crashes": 2.5}, "max_crashes has to be a whole number"),
        ({"max_crashes": 10**12}, "max_crashes"),
        ({"backoff": MINUTE}, r'backoff has to be a pulse.Backoff\(…\) or "default"'),
        ({"attempt_timeout": 60}, r"attempt_timeout has to be a timedelta: write timedelta\(seconds=60\)"),
        ({"attempt_timeout": timedelta(0)}, "attempt_timeout has to be positive"),
        ({}, "changes nothing"),
    ],
)
async def test_policy_that_cannot_be_meant_is_refused_with_a_sentence(
    server: ServerUnderTest, change: dict[str, Any], sentence: str
) -> None:
    async with pulse.Pulse(server.address) as p:
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            await p.set_topic_policy("mail", **change)
        assert not len(await p.topic_policies())
