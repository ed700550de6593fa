"""A server for each test of the transport."""

from collections.abc import AsyncIterator

import pytest

from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test


@pytest.fixture
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A server with a fast promoter, so that retries are promoted promptly."""
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.05 * SECOND)
    async with server_under_test(database_dsn) as running:
        yield running
