"""A server whose readiness is looked at every few milliseconds, and what its ports answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.eventually import PATIENCE_SECONDS
from tests.server.http_caller import Reply, get
from tests.transport.pulse_server_under_test import (
    ServerUnderTest,
    server_under_test,
)

SERVING = health_pb2.HealthCheckResponse.SERVING


NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@asynccontextmanager
async def observed(dsn: str, **settings: Any) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(dsn, http_address="127.0.0.1:0", **settings) as server:
        yield server


async def ask(server: ServerUnderTest, path: str) -> Reply:
    address = server.app.observation.http_address
    assert address is not None
    return await get(address, path)


def reasons(answer: Reply) -> dict[str, str]:
    return {name: check["why"] for name, check in answer.document["checks"].items() if not check["ok"]}


async def until_ready_is(server: ServerUnderTest, is_ready: bool) -> Reply:
    """Ask until the answer is the one that the test waits for."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (answer := await ask(server, "/readyz")).document["ready"] is not is_ready:
            server.app.observation.readiness.loop.nudge()
            await asyncio.sleep(0.02)
    return answer


async def health_of(server: ServerUnderTest, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int((await health_pb2_grpc.HealthStub(server.channel).Check(request)).status)
