"""Limits of callers without a user, and of connections that send nothing."""

import asyncio
import logging
import resource
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pulse_server.doors import admission
from tests.eventually import PROMPT_SECONDS, eventually
from tests.server.pulsed_process import Pulsed, pulsed
from tests.transport.http2_frames import ACK, SETTINGS, frame, opening
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

WATCH = health_pb2.HealthCheckRequest()


@pytest.mark.parametrize("says", [b"", b"PRI * HTTP/2.0\r\n"], ids=["nothing", "the beginning"])
async def test_silent_connection_is_closed(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    monkeypatch.setattr("pulse_server.server.HANDSHAKE_TIMEOUT", 0.3 * SECOND)
    async with server_under_test(database_dsn) as server:
        await is_closed(server, says)


async def is_closed(server: ServerUnderTest, says: bytes) -> None:
    """Return once the server has closed a connection that sends this and nothing more."""
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(says)
    async with asyncio.timeout(PROMPT_SECONDS):
        while await reader.read(1000):
            pass
    writer.close()


async def test_connection_that_only_begins_http2_is_closed(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.SETTINGS_TIMEOUT", 0.3 * SECOND)
    async with server_under_test(database_dsn) as server:
        await server.submit()
        assert len(opening()) == 33
        await is_closed(server, opening())
        assert server.channel.get_state() is grpc.ChannelConnectivity.READY, "a library acknowledges"


async def test_connection_that_answers_no_ping_is_closed(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.KEEPALIVE_INTERVAL", 1 * SECOND)
    monkeypatch.setattr("pulse_server.server.KEEPALIVE_TIMEOUT", 0.5 * SECOND)
    acknowledged = frame(SETTINGS, ACK, 0)
    async with server_under_test(database_dsn) as server:
        await is_closed(server, opening() + acknowledged)


@pytest.mark.parametrize("bound", ["ANONYMOUS_STREAMS", "ANONYMOUS_STREAMS_PER_ADDRESS"])
async def test_streams_without_user_are_bounded_and_logged_once(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bound: str
) -> None:
    monkeypatch.setattr(admission, bound, 3)
    async with server_under_test(database_dsn) as server:
        health = health_pb2_grpc.HealthStub(server.channel)
        watches = [health.Watch(WATCH) for _ in range(3)]
        for watch in watches:
            await watch.read()

        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                with pytest.raises(grpc.aio.AioRpcError, match="try again later") as refused:
                    await health.Watch(WATCH).read()
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [record.message for record in caplog.records] == ["streams_without_user_refused"]
        await health.Check(WATCH)

        watches.pop().cancel()
        await eventually(lambda: is_accepted(health))
        for watch in watches:
            watch.cancel()


async def is_accepted(health: health_pb2_grpc.HealthStub) -> bool:
    watch = health.Watch(WATCH)
    try:
        await watch.read()
    except grpc.aio.AioRpcError:
        return False
    watch.cancel()
    return True


async def test_server_may_have_as_many_open_files_as_the_system_allows(database_dsn: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        async with pulsed(database_dsn) as server:
            allowed, most = open_files(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == most


def open_files(server: Pulsed) -> list[str]:
    """Return the soft and the hard limit of open files of the process."""
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    return line.split()[3:5]
