"""Jobs that applications store in their own transactions, by the functions of the schema.

Three comparisons. A transaction with a business row and a job, by pulse.enqueue and by an INSERT into a table
like pulse.jobs. A thousand jobs by one enqueue_many, and by the statement of a server. The submits of a
server while open transactions hold two keys that are submitted, too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import asyncpg

import pulse
from benchmarks.figures import Figure, written
from benchmarks.filling import TOPIC
from benchmarks.repeating import repeated
from benchmarks.scenarios.load import client
from benchmarks.stand import Stand
from benchmarks.verdicts import Verdict
from pulse_server.base.ids import new_id
from pulse_server.database.connections import HOT_PLANS
from pulse_server.database.statements import statements
from pulse_server.jobs.inserts import batch
from pulse_server.jobs.new_jobs import NewJob

NAME = "transactions"
SESSIONS = 8
# The kinds take turns this many times, each time with so many transactions.
ROUNDS, TRANSACTIONS = 6, 2_000
MANY, CALLS = 1_000, 30
HELD_KEYS, HELD_SECONDS = 2, 6.0
MOST_OF_BARE, MOST_OF_INSERT_JOBS, MOST_MS = 1.3, 1.0, 500.0

_PAYLOAD = b'{"i": 12345, "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}'
_TABLES = """
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, total integer NOT NULL);
CREATE TABLE bare_jobs (LIKE pulse.jobs INCLUDING ALL);
"""
_ORDER = "INSERT INTO orders (total) VALUES (90)"
_ENQUEUE = "SELECT job_id FROM pulse.enqueue($1, $2)"
_BARE = """
INSERT INTO bare_jobs (topic, payload, id, priority, max_attempts, submitted_at, next_run_at, queued, status)
VALUES ($1, $2, $3, 0, 25, clock_timestamp(), clock_timestamp(), true, 'PENDING')
"""
_ENQUEUE_MANY = "SELECT cardinality(pulse.enqueue_many($1, $2))"
_EMPTY = "TRUNCATE orders, bare_jobs, pulse.jobs, pulse.arrivals"
_INSERT_JOBS = statements("jobs/transitions/jobs.sql", "jobs/queries.sql")["insert_jobs"]
# As the statement is sent if the ids were made for the request.
_INSERT_FRESH_JOBS = _INSERT_JOBS.replace("ON CONFLICT DO NOTHING", "")
_PAUSE_SECONDS = 0.02

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Call: TypeAlias = Callable[[Connection], Awaitable[object]]


class Commits(NamedTuple):
    """Commits per second."""

    enqueue: float
    bare: float


class Calls(NamedTuple):
    """The milliseconds of a call with a thousand jobs."""

    enqueue_many: float
    insert_jobs: float
    insert_fresh_jobs: float


class Submits(NamedTuple):
    """The milliseconds of submits by RPC."""

    median: float
    slowest: float


async def measure(stand: Stand) -> list[Figure]:
    commits = await repeated(stand, "a row and a job", lambda: _commit(stand))
    calls = await repeated(stand, f"{MANY:,} jobs in a call", lambda: _call(stand))
    submits = await repeated(stand, "submits beside held keys", lambda: _submit(stand))
    of_bare = [run.bare / run.enqueue for run in commits]
    of_insert_jobs = [run.enqueue_many / run.insert_jobs for run in calls]
    of_fresh = statistics.median(run.enqueue_many / run.insert_fresh_jobs for run in calls)
    held = f"a submit while {HELD_KEYS} keys are held"
    slowest = Figure(NAME, f"{held}, the slowest", "ms", [run.slowest for run in submits])
    verdicts = [
        _verdict("a row and a job in a transaction", of_bare, MOST_OF_BARE, "× the bare INSERT"),
        _verdict(f"{MANY:,} jobs by enqueue_many", of_insert_jobs, MOST_OF_INSERT_JOBS, "× insert_jobs"),
        _verdict(slowest.name, slowest.repeats, MOST_MS, "ms"),
    ]
    for verdict in verdicts:
        print(verdict.line, flush=True)
    stand.verdicts += verdicts
    return [
        Figure(
            NAME, f"a row and a bare INSERT, {SESSIONS} sessions", "commits/s", [run.bare for run in commits]
        ),
        Figure(
            NAME,
            f"a row and pulse.enqueue, {SESSIONS} sessions",
            "commits/s",
            [run.enqueue for run in commits],
            f"costs {statistics.median(of_bare):.2f} × the bare INSERT",
        ),
        Figure(NAME, f"{MANY:,} jobs by insert_jobs", "ms", [run.insert_jobs for run in calls]),
        Figure(
            NAME,
            f"{MANY:,} jobs by one enqueue_many",
            "ms",
            [run.enqueue_many for run in calls],
            f"{statistics.median(of_insert_jobs):.2f} × insert_jobs, {of_fresh:.2f} × for fresh ids",
        ),
        Figure(NAME, held, "ms", [run.median for run in submits], "median"),
        slowest,
    ]


def _verdict(about: str, repeats: Sequence[float], most: float, unit: str) -> Verdict:
    median = statistics.median(repeats)
    return Verdict(f"{NAME}, {about}", f"{written(median)} {unit}, at most {most:g}", median <= most)


# ------------------------------------------------------------ a row and a job


async def _commit(stand: Stand) -> Commits:
    count = stand.sized(TRANSACTIONS)
    async with stand.database() as dsn, _connections(dsn, SESSIONS) as sessions:
        await sessions[0].execute(_TABLES)
        await stand.settle(dsn)
        kinds: dict[str, Call] = {
            "enqueue": lambda session: session.fetchval(_ENQUEUE, TOPIC, _PAYLOAD),
            "bare": lambda session: session.execute(_BARE, TOPIC, _PAYLOAD, new_id()),
        }
        for call in kinds.values():
            await _transactions(sessions, call, count // 4)
        with stand.background.watched():
            rates: dict[str, list[float]] = {name: [] for name in kinds}
            for _ in range(ROUNDS):
                await sessions[0].execute(_EMPTY)
                for name, call in kinds.items():
                    rates[name].append(count / await _transactions(sessions, call, count))
        return Commits(**{name: statistics.median(found) for name, found in rates.items()})


async def _transactions(sessions: Sequence[Connection], call: Call, count: int) -> float:
    """Commit so many transactions with a row and a job. Returns the seconds it took."""
    numbers = iter(range(count))

    async def commit(session: Connection) -> None:
        for _ in numbers:
            async with session.transaction():
                await session.execute(_ORDER)
                await call(session)

    began = time.perf_counter()
    await asyncio.gather(*(commit(session) for session in sessions))
    return time.perf_counter() - began


# ------------------------------------------------------------ many jobs in a call


async def _call(stand: Stand) -> Calls:
    """The calls take turns. The statements of the server have the settings of its sessions.

    The ids of enqueue_many are not sent back: a driver reads them, which is no time of SQL.
    """
    async with (
        stand.database() as dsn,
        _connections(dsn, 1) as (ours,),
        _connections(dsn, 1, HOT_PLANS) as (servers,),
    ):
        await ours.execute(_TABLES)
        await stand.settle(dsn)
        payloads = [_PAYLOAD] * MANY
        times: dict[str, list[float]] = {name: [] for name in Calls._fields}
        with stand.background.watched():
            for number in range(1 + stand.sized(CALLS)):
                took = {"enqueue_many": await _timed(ours, _ENQUEUE_MANY, TOPIC, payloads)}
                for name, text in (("insert_jobs", _INSERT_JOBS), ("insert_fresh_jobs", _INSERT_FRESH_JOBS)):
                    jobs = [NewJob(new_id(), TOPIC, _PAYLOAD, 0, 25) for _ in range(MANY)]
                    took[name] = await _timed(servers, text, *batch(jobs))
                for name, milliseconds in took.items():
                    times[name] += [milliseconds] if number else []  # the first one is prepared
                await ours.execute(_EMPTY)
        return Calls(**{name: statistics.median(found) for name, found in times.items()})


async def _timed(connection: Connection, text: str, *values: object) -> float:
    began = time.perf_counter()
    await connection.fetch(text, *values)
    return (time.perf_counter() - began) * 1000


# ------------------------------------------------------------ held keys


async def _submit(stand: Stand) -> Submits:
    keys = [f"held-{number}" for number in range(HELD_KEYS)]
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(stand.database())
        await stand.settle(dsn)
        server = await stack.enter_async_context(stand.pulsed(dsn))
        other, *clients = [
            await stack.enter_async_context(client(server.address)) for _ in range(1 + HELD_KEYS)
        ]
        (holder,) = await stack.enter_async_context(_connections(dsn, 1))
        transaction = holder.transaction()
        await transaction.start()
        for key in keys:
            await holder.fetchval("SELECT job_id FROM pulse.enqueue($1, $2, key => $3)", TOPIC, _PAYLOAD, key)
        with stand.background.watched():
            submitting = [
                asyncio.create_task(_submit_held(p, key)) for p, key in zip(clients, keys, strict=True)
            ]
            try:
                times = await _submit_others(other, stand.sized(int(HELD_SECONDS * 1000)) / 1000)
            finally:
                for task in submitting:
                    task.cancel()
                await asyncio.gather(*submitting, return_exceptions=True)
        await transaction.rollback()
    return Submits(statistics.median(times), max(times))


async def _submit_held(p: pulse.Pulse, key: str) -> None:
    """Submit the held key again and again."""
    while True:
        with suppress(pulse.PulseError):
            await p.enqueue(TOPIC, {}, key=key, timeout=timedelta(seconds=5))


async def _submit_others(p: pulse.Pulse, seconds: float) -> list[float]:
    times = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        await p.enqueue(TOPIC, {})
        times.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(_PAUSE_SECONDS)
    return times


@asynccontextmanager
async def _connections(
    dsn: str, count: int, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[list[Connection]]:
    found: list[Connection] = []
    try:
        for _ in range(count):
            found.append(await asyncpg.connect(dsn, server_settings=dict(settings or {})))
        yield found
    finally:
        for connection in found:
            await connection.close()
