"""Priorities, deletions, groups of dead letters and identities, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import pulse
from tests.transport.authorized import PASSWORD, USERS
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.test_rpc_dead_letters import fail_all
from tests.transport.test_rpc_many_jobs import add_dead_letters


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_one_job_is_prioritized_and_deleted(client: pulse.Pulse) -> None:
    job = await client.enqueue("mail")

    assert (await client.prioritize(job.id, 5)).priority == 5
    with pytest.raises(pulse.InvalidTransition, match="Cancel it first"):
        await client.delete(job.id)
    await client.cancel(job.id)
    with pytest.raises(pulse.InvalidTransition, match="not finished"):
        await client.prioritize(job.id, 6)
    await client.delete(job.id)
    with pytest.raises(pulse.NotFound):
        await client.get_job(job.id)


async def test_all_that_match_are_prioritized_and_deleted(
    server: ServerUnderTest, client: pulse.Pulse
) -> None:
    await client.enqueue_many("mail", [None] * 3, metadata={"tenant": "acme"})
    await client.enqueue_many("mail", [None] * 2)
    await add_dead_letters(server, 700)

    assert [done async for done in client.prioritize_matching(9, metadata={"tenant": "acme"})] == [3]
    assert await server.table.count("priority = 9") == 3
    assert [done async for done in client.delete_matching(status="DEAD_LETTERED")] == [500, 700]
    assert await server.table.count() == 5


async def test_group_of_dead_letters_is_retried_by_its_error_group(
    server: ServerUnderTest, client: pulse.Pulse
) -> None:
    await fail_all(server, "KeyError: 'a'", "OSError", "KeyError: 'b'")
    await add_dead_letters(server, 2, "sms")

    found = await client.dead_letters()

    assert {(group.topic, group.count) for group in found} == {("mail", 2), ("mail", 1), ("sms", 2)}
    assert found.groups_left_out == 0
    for group in found:
        which = {"topic": group.topic, "error_group": group.error_group}
        assert [job.error_group for job in await client.list_jobs(**which)] == [
            group.error_group
        ] * group.count
        assert [done async for done in client.retry_matching(**which)] == [group.count]
    assert await server.table.count("status = 'DEAD_LETTERED'") == 0


async def test_empty_group_is_not_taken_for_any(client: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="error_group is empty"):
        await client.count_jobs(error_group="")


async def test_open_server_treats_every_caller_as_an_admin(client: pulse.Pulse) -> None:
    identity = await client.whoami()

    assert (identity.user, identity.role) == (None, "admin")
    assert identity.may("DeleteJobs")


async def test_whoami_lists_what_the_user_may_do(database_dsn: str) -> None:
    async with (
        server_under_test(database_dsn, users=USERS) as server,
        pulse.Pulse(server.address, user="viewer", password=PASSWORD) as client,
    ):
        identity = await client.whoami()

    assert (identity.user, identity.role) == ("viewer", "viewer")
    assert identity.may("ListJobs")
    assert not identity.may("RetryJobs")


async def test_sync_client_has_the_same_verbs(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 3)

    def use() -> None:
        with pulse.SyncPulse(server.address) as client:
            job = client.enqueue("mail")
            assert client.prioritize(job.id, 2).priority == 2
            assert client.prioritize_batch(3, topic="mail", status="PENDING").changed == 1
            assert list(client.prioritize_matching(4, topic="mail")) == [1]
            (group,) = client.dead_letters(topic="mail").groups
            assert group.count == 3
            assert client.delete_batch(error_group=group.error_group, limit=1).changed == 1
            assert list(client.delete_matching(status="DEAD_LETTERED")) == [2]
            client.cancel(job.id)
            client.delete(job.id)
            assert client.whoami().role == "admin"

    await asyncio.to_thread(use)
    assert await server.table.count() == 0
