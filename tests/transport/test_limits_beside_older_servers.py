"""Servers of a version without limits: beside them no topic gets its first limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import grpc
import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.test_rpc_limits import declare, limits, override

OLDER = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_dsn)
    yield connection
    await connection.close()


async def connect_older(connection: asyncpg.Connection) -> None:
    """Record a server as its release does, which knows no further columns."""
    await connection.execute(
        "INSERT INTO pulse.servers (id, name, workers) VALUES ($1, 'old:7', '[]')", OLDER
    )


async def disconnect_older(connection: asyncpg.Connection) -> None:
    await connection.execute("DELETE FROM pulse.servers WHERE id = $1", OLDER)


async def test_first_limit_is_refused_until_the_older_server_is_gone(
    server: ServerUnderTest, connection: asyncpg.Connection
) -> None:
    await connect_older(connection)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await override(server.stub, turns=True)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == (
        "topic 'mail' can have no limits yet: server old:7 is of a version that does not know them. "
        "Upgrade all servers first."
    )
    assert await limits(server.stub) == []

    await disconnect_older(connection)
    await override(server.stub, turns=True)
    assert [known.topic for known in await limits(server.stub)] == ["mail"]


async def test_limit_of_code_waits_until_the_older_server_is_gone(
    server: ServerUnderTest, connection: asyncpg.Connection
) -> None:
    await connect_older(connection)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await declare(server.stub, mail=pb.FlowPolicy(limit=10))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "Limits cannot be put in force: server old:7 is" in (refused.value.details() or "")
    assert await limits(server.stub) == []


async def test_limit_that_is_in_force_can_be_changed_beside_an_older_server(
    server: ServerUnderTest, connection: asyncpg.Connection
) -> None:
    await override(server.stub, limit=5)
    await connect_older(connection)
    await override(server.stub, limit=3)
    await declare(server.stub, mail=pb.FlowPolicy(limit=10))
    (known,) = await limits(server.stub)
    assert (known.flow.limit, known.declared.limit) == (3, 10)


async def test_older_server_that_is_silent_does_not_count(
    server: ServerUnderTest, connection: asyncpg.Connection
) -> None:
    await connect_older(connection)
    await connection.execute(
        "UPDATE pulse.servers SET seen_at = now() - interval '21 seconds' WHERE id = $1", OLDER
    )
    await override(server.stub, limit=5)


async def test_servers_of_this_version_know_limits(
    server: ServerUnderTest, connection: asyncpg.Connection
) -> None:
    async def is_recorded() -> bool:
        return bool(await connection.fetchval("SELECT bool_and(knows_limits) FROM pulse.servers"))

    await eventually(is_recorded)


async def test_worker_with_limits_takes_its_first_job_once_the_older_server_is_gone(
    server: ServerUnderTest, connection: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connect_older(connection)
    seen: list[pulse.FlowPolicy] = []
    async with pulse.Pulse(server.address) as p:

        @p.job("mail", limit=pulse.Concurrency(1))
        async def mail() -> None:
            seen.extend(known.policy for known in await p.limits())

        await p.enqueue("mail")
        running = asyncio.create_task(p.run(handle_signals=False))
        await eventually(lambda: "server old:7 is of a version that does not know them" in caplog.text)
        assert not seen
        await disconnect_older(connection)
        await eventually(lambda: bool(seen))
        running.cancel()
        await asyncio.wait({running})
    assert seen == [pulse.FlowPolicy(limit=pulse.Concurrency(1))]
