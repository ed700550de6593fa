"""A drain: workers empty a full queue, timed until their work is committed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from benchmarks.counters import Transactions
from benchmarks.crew import WORKER
from benchmarks.meters import IS_AVAILABLE, cpu_seconds
from benchmarks.processes import Server
from benchmarks.scenarios.load import nothing_unfinished
from benchmarks.stand import Stand

CONCURRENCY = 100

# asyncpg asks nothing when it connects, but Postgres counts a transaction for the login.
_LOGIN = 1
_FINISHED = "SELECT count(*) FROM pulse.all_jobs WHERE finished_at IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Drained:
    """The cost of a drain. CPU is in microseconds per job; empty if it cannot be measured."""

    rate: float
    cpu: Mapping[str, float]
    statements: float = 0.0
    """Per job; 0 if the servers were started without metrics."""
    questions: int = 0
    """How many transactions the benchmark itself made in the database."""
    transactions: Transactions | None = None
    """The server's transactions, if they were counted."""


async def drain(
    stand: Stand,
    dsn: str,
    servers: Sequence[Server],
    topics: Sequence[str],
    jobs: int,
    *,
    is_all: bool = True,
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
    program: str = WORKER,
) -> Drained:
    """Let workers loose on a filled queue until that many jobs are done: all there are, or some of them.

    The clock starts with the first handler. It stops when the database holds no unfinished job, or, when
    there are more, at the moment when the finished ones are counted.
    """
    addresses = [server.address for server in servers]
    async with stand.crew(
        addresses,
        CONCURRENCY,
        processes=processes,
        topics=topics,
        environment=environment,
        program=program,
    ) as crew:
        connection = await asyncpg.connect(dsn)
        try:
            done_before = 0 if is_all else await connection.fetchval(_FINISHED)
            statements = sum([await server.statements() for server in servers])
            trees = {"pulsed": [server.pid for server in servers], "worker": crew.pids}
            if stand.postmaster is not None:
                trees["Postgres"] = [stand.postmaster]
            before = _cpu(trees)
            with stand.background.watched():
                crew.let_loose()
                await crew.has_started(jobs)
                if is_all:
                    questions = await nothing_unfinished(connection, topics)
                    finished, done = time.time(), jobs
                else:
                    finished, questions = time.time(), 2
                    done = await connection.fetchval(_FINISHED) - done_before
            used = _cpu(trees)
        finally:
            await connection.close()
        statements = sum([await server.statements() for server in servers]) - statements
        first = min(started for _, started in crew.pairs())
    return Drained(
        done / (finished - first),
        {name: (used[name] - before[name]) * 1e6 / done for name in used},
        statements / done,
        questions + _LOGIN,
    )


def _cpu(trees: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: cpu_seconds(roots) for name, roots in trees.items()} if IS_AVAILABLE else {}
