"""A role that may only connect to the database can LISTEN and NOTIFY: it hears nothing, and stops nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.postgres.sessions import Connection
from tests.server.roles import role_in
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.streaming_worker import claim_of
from tests.transport.test_two_replicas import both_listen
from tests.transport.watching import Watching, wait_for_watcher

# What the channel was called before its name was a secret.
CONSTANT = "pulse_wakeups"


@pytest.fixture
async def replicas(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.05 * SECOND)
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        await both_listen(a)
        yield a, b


@asynccontextmanager
async def stranger(dsn: str, channel: str) -> AsyncIterator[tuple[Connection, list[str]]]:
    """A role that may connect and nothing else, which listens on the channel; and what it hears."""
    heard: list[str] = []
    async with role_in(dsn) as (_, as_role):
        connection = await asyncpg.connect(as_role, timeout=60)
        own = connection.get_server_pid()
        await connection.add_listener(
            channel, lambda _, pid, __, message: heard.append(message) if pid != own else None
        )
        try:
            yield connection, heard
        finally:
            await connection.close(timeout=10)


async def channel_of(server: ServerUnderTest, *, is_known: bool) -> str:
    """The channel of the servers, as a role that sees the statements of others may know it."""
    if not is_known:
        return CONSTANT
    from pulse_server.base.ids import Seal

    secret = await server.table.connection.fetchval("SELECT secret FROM pulse.cluster_secret")
    return Seal(secret).channel


@pytest.mark.parametrize("is_known", [False, True], ids=["the name is a secret", "the name is known"])
async def test_forged_ends_stop_no_handler(
    replicas: tuple[ServerUnderTest, ServerUnderTest], database_dsn: str, is_known: bool
) -> None:
    here, there = replicas
    channel = await channel_of(here, is_known=is_known)
    async with stranger(database_dsn, channel) as (session, heard), there.worker("w1", capacity=20) as worker:
        await here.submit_many(15)
        first, *others = await worker.take(15)
        for job in others:
            claim = [job.job_id, "w1", job.attempt, job.run]
            for key in ("ended", "lapsed"):
                message = json.dumps({"topics": [], "ended": []} | {key: [claim]})
                await session.execute("SELECT pg_notify($1, $2)", channel, message)
        for message in list(heard):  # of the servers, word for word
            await session.execute("SELECT pg_notify($1, $2)", channel, message)
        await here.stub.CancelJob(pb.CancelJobRequest(job_id=first.job_id))

        assert await worker.stops() == [claim_of(first)], "the true end comes behind the forged ones"
        await worker.complete(*others)
        for job in others:
            assert (await there.get(job.job_id)).status == "COMPLETED"
        assert is_known or not heard


@pytest.mark.parametrize("is_known", [False, True], ids=["the name is a secret", "the name is known"])
async def test_forged_transitions_reach_no_watcher(
    replicas: tuple[ServerUnderTest, ServerUnderTest], database_dsn: str, is_known: bool
) -> None:
    here, there = replicas
    channel = await channel_of(here, is_known=is_known)
    async with stranger(database_dsn, channel) as (session, heard), Watching(here.stub) as watching:
        await wait_for_watcher(there)
        for entry in (
            ["forged", "mail", "COMPLETED", 1, "w1", "", 1e9],
            ["forged", "mail", "RUNNING", "one", "w1", "", 1e9],
            ["forged", "mail", "RUNNING", 2**40, "w1", "", 1e9],
            ["forged", "mail", "RUNNING", 1, "\ud800", "", 1e9],
        ):
            message = json.dumps({"topics": [], "ended": [], "transitions": [entry], "missed": 0})
            await session.execute("SELECT pg_notify($1, $2)", channel, message)
        job_id = await there.submit()
        (seen,) = await watching.see(1)

        assert (seen.job_id, seen.status, watching.missed) == (job_id, "PENDING", 0)
        assert is_known or not heard
