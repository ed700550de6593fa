"""A store for one run: a fresh database on the stand's cluster, or a fresh redis-server; empty or a copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from benchmarks.peers.postgres_store import PostgresStore, postgres_store
from benchmarks.peers.redis_store import RedisStore, redis_store
from benchmarks.stand import Stand


class Store(Protocol):
    url: str

    async def count(self, question: str) -> int:
        """Return the number that the store answers a peer's question with."""

    async def settle(self) -> None:
        """Leave no work of the preparation behind for the measured part to pay."""


@asynccontextmanager
async def fresh_store(
    stand: Stand, kind: Literal["postgres", "redis"], template: Store | None = None
) -> AsyncIterator[Store]:
    """Yields an unshared store. A copy of a template starts with the template's data."""
    if kind == "postgres":
        assert template is None or isinstance(template, PostgresStore)
        async with postgres_store(stand, template) as database:
            yield database
    else:
        assert template is None or isinstance(template, RedisStore)
        async with redis_store(template) as server:
            yield server
