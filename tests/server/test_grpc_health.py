"""gRPC's health and reflection services."""

from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pulse_server.base.errors import Unavailable
from tests.server.observed_server import NOT_SERVING, SERVICE_UNKNOWN, SERVING, health_of, observed
from tests.transport.pulse_server_under_test import (
    ServerUnderTest,
    server_under_test,
)


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with observed(database_dsn) as server:
        yield server


async def test_health_of_the_service_is_that_of_the_server(server: ServerUnderTest) -> None:
    assert await health_of(server, "pulse.v1.PulseService") == SERVING


async def test_health_of_an_unknown_service_is_not_found(server: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_of(server, "pulse.v2.PulseService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(service="other"))
    assert (await watch.read()).status == SERVICE_UNKNOWN
    watch.cancel()


async def test_watcher_receives_each_change(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING

    async def away() -> None:
        raise Unavailable("The database did not answer.")

    readiness = server.app.observation.readiness
    ping = readiness._ping
    monkeypatch.setattr(readiness, "_ping", away)
    await readiness.tick()
    assert (await watch.read()).status == NOT_SERVING
    monkeypatch.setattr(readiness, "_ping", ping)
    await readiness.tick()
    assert (await watch.read()).status == SERVING
    watch.cancel()


async def listed_services(server: ServerUnderTest) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    async for answer in call:
        return sorted(service.name for service in answer.list_services_response.service)
    raise AssertionError("no answer")


async def test_reflection_is_off_unless_asked_for(server: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed_services(server)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_reflection_lists_the_services(database_dsn: str) -> None:
    async with server_under_test(database_dsn, reflection=True) as server:
        services = await listed_services(server)

    assert services == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "pulse.v1.PulseService",
    ]
