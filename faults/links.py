"""The links between the processes of a run: each is a proxy that faults can be injected into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faults.bank import BANK
from faults.cluster import OWNER
from faults.proxy import Proxy


class Link(Proxy):
    """A proxy to the database of the run, or to a server, which may differ for each life of a worker."""

    @property
    def dsn(self) -> str:
        """The database of the run behind it, for its owner."""
        return f"postgresql://{OWNER}@{self.address}/{OWNER}?sslmode=disable"

    @property
    def bank_dsn(self) -> str:
        """The same database, for the application that moves money."""
        return f"postgresql://{BANK}@{self.address}/{OWNER}?sslmode=disable"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        await self.open()
        try:
            yield
        finally:
            await self.close()
