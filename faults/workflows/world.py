"""What the actors of a trial share: two servers' connections, the history, and whether it is calm."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from faults.cluster import AWAY
from faults.history import History, Operation
from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Database
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.workflows.store import PostgresWorkflowRepo

# After an error: the database may be away.
_REST_SECONDS = 0.05


class Server:
    """The repositories of one pulsed."""

    def __init__(self, dsn: str) -> None:
        self.database = Database(dsn)
        self.jobs = PostgresJobRepo(self.database)
        self.workflows = PostgresWorkflowRepo(self.database)


@dataclass
class World:
    """In the calm at the end no actor disturbs another, and all attempts succeed."""

    seed: int
    servers: list[Server]
    history: History
    counts: Counter[str] = field(default_factory=Counter)
    is_calm: bool = False
    is_over: bool = False

    def server(self, random: Random) -> Server:
        return random.choice(self.servers)

    async def repeat(self, act: Callable[[], Awaitable[None]], longest_pause: float, random: Random) -> None:
        """Act on and on, with random pauses. An act that fails may have been carried out."""
        while not self.is_over:
            try:
                await act()
            except (PulseError, *AWAY) as error:
                self.counts[f"broken: {type(error).__name__}"] += 1
                await asyncio.sleep(_REST_SECONDS)
            await asyncio.sleep(random.random() * longest_pause)

    async def record(self, operation: Operation, act: Awaitable[object]) -> None:
        """Carry out an operation, and record how it ended."""
        try:
            await act
        except (PulseError, *AWAY) as error:
            operation.unknown(repr(error))
            raise
        operation.done()
