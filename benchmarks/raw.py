"""The database's own limit: the rate of SQL alone on a queue-like table, without server or handler.

It uses the best known techniques: prepared statements, arrays, batches, growing ids. So a share of
this rate is meaningful. It is measured in the same run as the compared figures.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeAlias
from uuid import UUID

import asyncpg
import uuid_utils.compat

from benchmarks.draining import Drained
from benchmarks.figures import Figure, percentiles
from benchmarks.meters import IS_AVAILABLE, cpu_seconds
from benchmarks.stand import Stand
from pulse_server.database.connections import HOT_PLANS

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Row: TypeAlias = tuple[UUID, str, bytes, int]

INSERTED = 40_000
INSERT_BATCH = 1_000
CYCLED = 20_000
CYCLE_BATCH = 500
IDLE_JOBS = 200
IDLE_GAP_SECONDS = 0.02
_PAYLOAD = b'{"i": 12345, "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}'
_COLUMNS = ["id", "topic", "payload", "priority"]

_TABLE = """
CREATE TABLE queue (
    id uuid PRIMARY KEY,
    due_at timestamptz NOT NULL DEFAULT now(),
    submitted_at timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz,
    finished_at timestamptz,
    priority integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 5,
    status text NOT NULL DEFAULT 'waiting',
    topic text NOT NULL,
    payload bytea NOT NULL,
    holder text
);
CREATE INDEX queue_claim ON queue (topic, priority DESC, submitted_at, id) WHERE status = 'waiting';
CREATE INDEX queue_lease ON queue (lease_until) WHERE status = 'running';
"""
_INSERT = """
INSERT INTO queue (id, topic, payload, priority)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::int[])
"""
_INSERT_AND_NOTIFY = """
WITH new AS (INSERT INTO queue (id, topic, payload, priority) VALUES ($1, $2, $3, $4))
SELECT pg_notify('queue', '')
"""
_CLAIM = """
UPDATE queue AS job
SET status = 'running', holder = $2, attempts = job.attempts + 1, lease_until = now() + interval '30 seconds'
FROM (
    SELECT id FROM queue
    WHERE topic = $1 AND status = 'waiting'
    ORDER BY priority DESC, submitted_at, id
    LIMIT $3 FOR UPDATE SKIP LOCKED
) AS chosen
WHERE job.id = chosen.id
RETURNING job.id, job.payload, job.priority, job.attempts, job.max_attempts
"""
# Guarded by the holder alone: with the status in it the planner may walk the index of leases instead.
_COMPLETE = """
UPDATE queue SET status = 'done', finished_at = now(), holder = NULL, lease_until = NULL
WHERE id = ANY($1::uuid[]) AND holder = $2
"""

# ---------------------------------------------------------------- insert


def insert_runs(stand: Stand) -> dict[str, Callable[[], Awaitable[float]]]:
    """Return the runs of batched inserts, by name: rows per second."""
    return {
        f"insert of {INSERT_BATCH:,}, {way}, {_connections(count)}": partial(_insert, stand, copy, count)
        for way, copy in (("unnest", False), ("COPY", True))
        for count in (1, 2)
    }


def insert_figures(scenario: str, rates: Mapping[str, Sequence[float]]) -> list[Figure]:
    return [
        Figure(scenario, name, "jobs/s", values, system="raw")
        for name, values in rates.items()
        if name.startswith("insert of")
    ]


async def _insert(stand: Stand, copy: bool, count: int) -> float:
    jobs = max(stand.sized(INSERTED), 2 * INSERT_BATCH)
    batches = iter([_rows(INSERT_BATCH) for _ in range(jobs // INSERT_BATCH)])

    async def insert(connection: Connection) -> None:
        for rows in batches:
            if copy:
                await connection.copy_records_to_table("queue", records=rows, columns=_COLUMNS)
            else:
                await connection.execute(_INSERT, *zip(*rows, strict=True))

    async with _queue(stand, count) as (_, connections):
        with stand.background.watched():
            began = time.perf_counter()
            await asyncio.gather(*map(insert, connections))
            return jobs / (time.perf_counter() - began)


# ---------------------------------------------------------------- claim and complete


def cycle_runs(stand: Stand) -> dict[str, Callable[[], Awaitable[Drained]]]:
    """Return the runs that claim and complete, by name."""
    return {
        f"claim {CYCLE_BATCH} + complete {CYCLE_BATCH}, {_connections(count)}": partial(_cycle, stand, count)
        for count in (1, 2)
    }


def cycle_figures(scenario: str, outcomes: Mapping[str, Sequence[Drained]]) -> list[Figure]:
    """Return the rates alone; the CPU behind them is in the notes."""
    return [
        Figure(scenario, name, "jobs/s", [run.rate for run in runs], _cpu_note(runs), system="raw")
        for name, runs in outcomes.items()
        if name.startswith("claim")
    ]


def _cpu_note(runs: Sequence[Drained]) -> str:
    used = [run.cpu["Postgres"] for run in runs if "Postgres" in run.cpu]
    return f"{statistics.median(used):.0f} µs of CPU per job in Postgres" if used else ""


async def _cycle(stand: Stand, count: int) -> Drained:
    jobs = max(stand.sized(CYCLED), 2 * CYCLE_BATCH)

    async def work(number: int, connection: Connection) -> int:
        claim, complete = await connection.prepare(_CLAIM), await connection.prepare(_COMPLETE)
        holder, done = f"holder-{number}", 0
        while rows := await claim.fetch("bench", holder, CYCLE_BATCH):
            await complete.fetch([row["id"] for row in rows], holder)
            done += len(rows)
        return done

    async with _queue(stand, count) as (dsn, connections):
        for _ in range(jobs // INSERT_BATCH):
            await connections[0].execute(_INSERT, *zip(*_rows(INSERT_BATCH), strict=True))
        await stand.settle(dsn)
        with stand.background.watched():
            before, began = _postgres_cpu(stand), time.perf_counter()
            done = sum(await asyncio.gather(*(work(*member) for member in enumerate(connections))))
            seconds, used = time.perf_counter() - began, _postgres_cpu(stand) - before
    assert done == jobs, f"{done} of {jobs} rows were completed"
    return Drained(jobs / seconds, {"Postgres": used * 1e6 / jobs} if used else {})


def _postgres_cpu(stand: Stand) -> float:
    return cpu_seconds([stand.postmaster]) if IS_AVAILABLE and stand.postmaster else 0.0


# ---------------------------------------------------------------- idle


async def idle_latencies(stand: Stand) -> list[float]:
    """Return the milliseconds from an insert that notifies to the claim by the listener, one each."""
    jobs = stand.sized(IDLE_JOBS)
    taken: list[float] = []
    async with _queue(stand, 3) as (_, (producer, listener, claimer)):
        insert, claim = await producer.prepare(_INSERT_AND_NOTIFY), await claimer.prepare(_CLAIM)
        notified = asyncio.Event()
        await listener.add_listener("queue", lambda *_: notified.set())

        async def claim_when_notified(began: float) -> None:
            await notified.wait()
            rows = await claim.fetch("bench", "holder", 10)
            taken.append((time.time() - began) * 1000)
            assert len(rows) == 1

        with stand.background.watched():
            begin = time.time()
            for number in range(jobs):
                await asyncio.sleep(max(0.0, begin + number * IDLE_GAP_SECONDS - time.time()))
                notified.clear()
                claiming = asyncio.create_task(claim_when_notified(time.time()))
                await asyncio.gather(claiming, insert.fetch(*_rows(1)[0]))
    return taken


def idle_figures(runs: Sequence[Sequence[float]]) -> list[Figure]:
    return percentiles("idle", "insert + notify → claim", runs, system="raw")


# ---------------------------------------------------------------- shared


@asynccontextmanager
async def _queue(stand: Stand, count: int) -> AsyncIterator[tuple[str, list[Connection]]]:
    """An empty table in a new database, and connections with the planner settings of pulsed."""
    async with stand.empty_database() as dsn, AsyncExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = await asyncpg.connect(dsn, server_settings=HOT_PLANS)
            stack.push_async_callback(connection.close)
            connections.append(connection)
        await connections[0].execute(_TABLE)
        await connections[0].execute("CHECKPOINT")
        yield dsn, connections


def _rows(count: int) -> list[Row]:
    return [(uuid_utils.compat.uuid7(), "bench", _PAYLOAD, 0) for _ in range(count)]


def _connections(count: int) -> str:
    return f"{count} connection" if count == 1 else f"{count} connections"
