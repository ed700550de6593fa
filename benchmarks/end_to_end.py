"""The load generator: producers submit while workers run, timed by one clock that travels in the payload."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import asyncpg

from benchmarks.counters import FLUSHED_AFTER_SECONDS, Transactions, read_transactions
from benchmarks.processes import Server
from benchmarks.scenarios.load import client, nothing_unfinished, produce
from benchmarks.stand import Stand

_WARM_UP = 80
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a load: jobs per second, and milliseconds from enqueue to the handler."""

    rate: float
    latencies: Sequence[float]
    statements: float = 0.0
    """Per job; 0 if the servers were started without metrics."""
    before: Transactions | None = None
    """The database's transactions when the clock started, if requested."""
    questions: int = 0
    """How many transactions the benchmark itself made in the database since."""


async def run_load(
    stand: Stand,
    dsn: str,
    servers: Sequence[Server],
    *,
    processes: int,
    concurrency: int,
    count_transactions: bool = False,
) -> Ran:
    """Submit jobs while workers run them. Producers and workers are spread over the servers.

    The clock starts with the first submit and stops when the database holds no unfinished job.
    """
    jobs, producers = stand.load.jobs, stand.load.producers
    addresses = [server.address for server in servers]
    async with AsyncExitStack() as stack:
        crew = await stack.enter_async_context(stand.crew(addresses, concurrency, processes=processes))
        clients = [await stack.enter_async_context(client(address)) for address in addresses]
        connection = await asyncpg.connect(dsn)
        stack.push_async_callback(connection.close)
        crew.let_loose()
        await crew.is_connected()
        await produce(clients, producers, _WARM_UP)  # connections, prepared statements
        await crew.has_started(_WARM_UP)
        await nothing_unfinished(connection)
        # The workers' last words about the warm-up, and the counts of backends that have nothing to do.
        await asyncio.sleep(FLUSHED_AFTER_SECONDS if count_transactions else _PAUSE_SECONDS)
        before = (
            await read_transactions(stand.server_dsn, dsn, when_all_left=False)
            if count_transactions
            else None
        )
        statements = sum([await server.statements() for server in servers])
        with stand.background.watched():
            begin = time.time()
            await produce(clients, producers, jobs)
            await crew.has_started(jobs + _WARM_UP)
            questions = await nothing_unfinished(connection)
            finished = time.time()
        statements = sum([await server.statements() for server in servers]) - statements
        pairs = [pair for pair in crew.pairs() if pair[0] >= begin]
    return Ran(
        jobs / (finished - min(submitted for submitted, _ in pairs)),
        [(started - submitted) * 1000 for submitted, started in pairs],
        statements / jobs,
        before,
        questions,
    )
