"""A server's store, line, roster and publisher."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.replica import StoredReplica, stored_replica


@pytest.fixture
async def replica(database_dsn: str) -> AsyncIterator[StoredReplica]:
    async with stored_replica(database_dsn) as replica:
        yield replica
