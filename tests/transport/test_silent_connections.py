"""Connections on which no caller was let in are closed, and no others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors import quotas
from tests.eventually import PROMPT_SECONDS
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.http2_frames import GOAWAY, next_frame, opening
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

ALONE = (("grpc.use_local_subchannel_pool", 1),)


@pytest.fixture
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A server where the first look finds connections, and the second finds them silent for too long."""
    monkeypatch.setattr(quotas, "FIRST_CALL", timedelta(0))
    monkeypatch.setattr(quotas, "LOOK", timedelta(hours=1))
    async with server_under_test(database_dsn, users=USERS) as running:
        yield running


class Silent:
    """A connection of HTTP/2 that makes no call."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def is_closed(self) -> bool:
        try:
            async with asyncio.timeout(PROMPT_SECONDS):
                while (await next_frame(self._reader))[0] != GOAWAY:
                    pass
        except (asyncio.IncompleteReadError, ConnectionError):
            return True
        return True


@asynccontextmanager
async def silent(server: ServerUnderTest) -> AsyncIterator[Silent]:
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(opening())
    await next_frame(reader)
    yield Silent(reader)
    writer.close()


@asynccontextmanager
async def channel_to(server: ServerUnderTest) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, ALONE) as channel:
        yield channel


async def look(server: ServerUnderTest, times: int = 2) -> None:
    for _ in range(times):
        await server.app.doors.connections.close()


async def lost(channel: grpc.aio.Channel) -> None:
    async with asyncio.timeout(PROMPT_SECONDS):
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def test_connection_without_a_call_is_closed(server: ServerUnderTest) -> None:
    async with silent(server) as connection:
        await look(server)
        assert await connection.is_closed()


async def test_connection_of_a_user_may_be_silent(server: ServerUnderTest) -> None:
    async with channel_to(server) as channel:
        await caller(channel, "viewer").WhoAmI(pb.WhoAmIRequest())
        await look(server, 3)
        assert channel.get_state() is grpc.ChannelConnectivity.READY


async def test_call_that_was_refused_lets_nobody_in(server: ServerUnderTest) -> None:
    async with channel_to(server) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await caller(channel, "viewer", "wrong").WhoAmI(pb.WhoAmIRequest())
        await look(server)
        await lost(channel)


async def test_connection_that_watches_the_health_stays(server: ServerUnderTest) -> None:
    async with channel_to(server) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watching = health.Watch(health_pb2.HealthCheckRequest())
        await watching.read()
        await look(server, 3)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        watching.cancel()


async def test_health_check_begins_the_time_anew(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with channel_to(server) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        await look(server, 1)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await look(server)
        await lost(channel)


async def test_silent_connections_of_an_address_are_bounded(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "FIRST_CALL", timedelta(hours=1))
    monkeypatch.setattr(quotas, "SILENT_PER_ADDRESS", 1)
    async with silent(server) as first:
        await look(server, 1)
        async with silent(server), channel_to(server) as channel:
            await caller(channel, "viewer").WhoAmI(pb.WhoAmIRequest())
            await look(server, 1)
            assert await first.is_closed(), "the oldest"
            assert channel.get_state() is grpc.ChannelConnectivity.READY


@each_row(
    "name, peer",
    [
        ("ipv4:10.1.2.3:4711", ("10.1.2.3", 4711)),
        ("ipv6:%5B::1%5D:4711", ("::1", 4711)),
        ("ipv6:[2001:db8::7%25eth0]:4711", ("2001:db8::7", 4711)),
        ("ipv6:%5B::ffff:10.1.2.3%5D:4711", ("10.1.2.3", 4711)),
        ("unix:/run/pulse.sock", ("", 0)),
    ],
)
def test_peer_is_named_as_its_socket(name: str, peer: tuple[str, int]) -> None:
    found = quotas._peer(name)
    assert found == peer or found.port == peer[1] == 0


async def test_connection_that_is_let_in_during_a_look_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look has missed it. The next one must not take a worker's only stream for a silent connection."""
    now = 0.0
    connections = quotas.SilentConnections(lambda: now)
    connections.port = 1
    ours, theirs = socket.socketpair()
    worker = quotas.Peer("127.0.0.1", 5000)

    def look_that_misses_it(_port: int) -> dict[quotas.Peer, socket.socket]:
        connections.let_in("ipv4:127.0.0.1:5000")
        return {}

    monkeypatch.setattr(quotas, "_connections", look_that_misses_it)
    await connections.close()
    monkeypatch.setattr(quotas, "_connections", lambda _port: {worker: ours.dup()})
    await connections.close()
    now = 3600.0
    await connections.close()
    theirs.setblocking(False)
    with ours, theirs, pytest.raises(BlockingIOError):  # it is open
        theirs.recv(1)
