"""Authentication of services that are not ours: health is public, reflection is not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pulse_server.access.service import Authenticator
from pulse_server.access.users import Directory
from pulse_server.base.metrics import Metrics
from pulse_server.database.audit import CountedCalls
from pulse_server.doors import admission
from pulse_server.doors.admission import AdmissionInterceptor, AuthenticationInterceptor, Responses
from pulse_server.doors.quotas import SilentConnections
from pulse_server.server import Health, add_reflection
from tests.eventually import PROMPT_SECONDS
from tests.transport.authorized import USERS, basic
from tests.transport.pulse_server_under_test import SECOND

SERVING = health_pb2.HealthCheckResponse.SERVING
CHECK = "/grpc.health.v1.Health/Check"
LIST = reflection_pb2.ServerReflectionRequest(list_services="")


@dataclass(frozen=True)
class Services:
    directory: Directory
    health: Any
    reflection: Any
    channel: grpc.aio.Channel

    def silent_check(self) -> Any:
        """A health check whose request has not been sent yet."""
        return self.channel.stream_stream(CHECK)()


async def _nothing() -> None:
    """Refused calls are not written here."""


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    directory, metrics = Directory(USERS), Metrics()
    authentication = AuthenticationInterceptor(
        Authenticator(directory, metrics),
        directory,
        AdmissionInterceptor(metrics, Responses(), SilentConnections()),
        CountedCalls(write=lambda *_: _nothing()),
    )
    server = grpc.aio.server(interceptors=[authentication])
    health = Health()
    health.set(is_serving=True)
    server.add_generic_rpc_handlers((health.handlers(),))
    add_reflection(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Services(
            directory,
            health_pb2_grpc.HealthStub(channel),
            reflection_pb2_grpc.ServerReflectionStub(channel),
            channel,
        )
    await server.stop(None)


async def test_health_needs_no_user(services: Services) -> None:
    request = health_pb2.HealthCheckRequest()
    assert (await services.health.Check(request)).status == SERVING
    watch = services.health.Watch(request)
    assert (await watch.read()).status == SERVING
    watch.cancel()


async def test_health_ignores_wrong_credentials(services: Services) -> None:
    answer = await services.health.Check(health_pb2.HealthCheckRequest(), metadata=basic("unknown"))
    assert answer.status == SERVING


async def test_request_of_an_anonymous_caller_has_a_short_timeout(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_REQUEST_TIMEOUT", 0.1 * SECOND)
    silent = services.silent_check()
    async with asyncio.timeout(PROMPT_SECONDS):
        assert await silent.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_silent_anonymous_callers_make_room_for_the_next(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_REQUESTS", 2)
    monkeypatch.setattr(admission, "ANONYMOUS_REQUEST_TIMEOUT", 3600 * SECOND)
    silent = [services.silent_check() for _ in range(20)]
    async with asyncio.timeout(PROMPT_SECONDS):
        for answer in islice(asyncio.as_completed([call.code() for call in silent]), 18):
            assert await answer is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await services.health.Check(health_pb2.HealthCheckRequest())).status == SERVING
    for call in silent:
        call.cancel()


async def test_anonymous_call_without_a_request_is_an_invalid_argument(services: Services) -> None:
    silent = services.silent_check()
    await silent.done_writing()
    assert await silent.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_reflection_is_for_users_of_any_role(services: Services) -> None:
    refused = services.reflection.ServerReflectionInfo()
    assert await refused.code() is grpc.StatusCode.UNAUTHENTICATED
    for user in USERS:
        for _ in range(2):  # checked, then remembered
            call = services.reflection.ServerReflectionInfo(metadata=basic(user.name))
            for _ in range(3):
                await call.write(LIST)
                assert (await call.read()).list_services_response.service
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK


async def test_any_stream_of_a_removed_user_ends(services: Services) -> None:
    gone = services.reflection.ServerReflectionInfo(metadata=basic("viewer"))
    stays = services.reflection.ServerReflectionInfo(metadata=basic("admin"))
    for call in (gone, stays):
        await call.write(LIST)
        await call.read()
    services.directory.replace([user for user in USERS if user.name != "viewer"])
    async with asyncio.timeout(PROMPT_SECONDS):
        assert await gone.code() is grpc.StatusCode.UNAUTHENTICATED
    await stays.write(LIST)
    assert (await stays.read()).list_services_response.service


async def test_caller_who_leaves_while_it_is_checked_leaves_nothing_behind(services: Services) -> None:
    calls = [services.reflection.ServerReflectionInfo(metadata=basic("admin")) for _ in range(20)]
    for call in calls:
        call.cancel()
    last = services.reflection.ServerReflectionInfo(metadata=basic("admin"))
    await last.write(LIST)
    assert (await last.read()).list_services_response.service
