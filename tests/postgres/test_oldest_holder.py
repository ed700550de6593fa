"""Who keeps dead rows from being removed, with real sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.views.vitals import Holder, HolderKind, VitalsQueries
from tests.eventually import PATIENCE_SECONDS
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases

Holding = AsyncIterator[Connection]
ROLE = f"pulse_stranger_{os.getpid()}"


@asynccontextmanager
async def session_of(dsn: str, application: str = "report") -> Holding:
    session = await asyncpg.connect(
        dsn, timeout=10, command_timeout=30, server_settings={"application_name": application}
    )
    try:
        yield session
    finally:
        session.terminate()


@asynccontextmanager
async def looking(dsn: str) -> AsyncIterator[VitalsQueries]:
    """What a server asks, on a database that no other test has a session in."""
    database = Database(dsn)
    try:
        yield VitalsQueries(database)
    finally:
        await database.close()


@pytest.fixture
async def vitals(database_dsn: str) -> AsyncIterator[VitalsQueries]:
    async with looking(database_dsn) as vitals:
        yield vitals


@pytest.fixture
async def session(database_dsn: str) -> Holding:
    async with session_of(database_dsn) as session:
        yield session


@pytest.fixture
async def other(database_dsn: str) -> Holding:
    async with session_of(database_dsn, "other") as other:
        yield other


@pytest.fixture
def stranger_dsn(databases: Databases, database_dsn: str) -> Iterator[str]:
    """The same database, for a role that may use the queue and see nothing of other roles."""

    async def make(dsn: str) -> None:
        async with session_of(dsn) as owner:
            await owner.execute(
                f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pulse TO {ROLE}"
            )

    async def remove(dsn: str) -> None:
        async with session_of(dsn) as owner:
            await owner.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")

    databases.run(make(database_dsn))
    parts = urlsplit(database_dsn)
    host = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{ROLE}:x@{host}"))
    databases.run(remove(database_dsn))


async def take_snapshot(session: Connection) -> int:
    """Begin a transaction that sees this moment for as long as it lasts. Returns the session's pid."""
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    pid: int = await session.fetchval("SELECT pg_backend_pid()")
    return pid


async def looks_back_to(session: Connection, xid: int) -> bool:
    """Begin a transaction with a snapshot. Returns whether this one is the oldest that it saw running."""
    await take_snapshot(session)
    reaches = "SELECT backend_xmin::text::bigint = $1 FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    return bool(await session.fetchval(reaches, xid))


async def write(session: Connection) -> int:
    """Begin a transaction that has an id and no snapshot any more. Returns the id, as sessions show it."""
    await session.execute("BEGIN")
    xid = int(await session.fetchval("SELECT pg_current_xact_id()::text")) % 2**32
    await session.execute("SELECT 1")  # what was fetched before lives on, snapshot and all, until this
    return xid


async def use_up_transactions(session: Connection, count: int) -> None:
    for _ in range(count):
        await session.fetchval("SELECT pg_current_xact_id()")


async def found(vitals: VitalsQueries, pid: int | None, name: str = "") -> Holder:
    """Return the oldest holder once it is this session, or what bears this name.

    Tests that run beside this one write in databases of their own, and an open transaction that has written
    is everybody's business for as long as it lasts.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            holder = await vitals.oldest_holder()
            if holder is not None and (holder.pid, holder.name) == (pid, name):
                return holder
            await asyncio.sleep(0.005)


async def is_shown(vitals: VitalsQueries, pid: int) -> bool:
    """Whether this session is said to hold anything back."""
    holder = await vitals.oldest_holder()
    return holder is not None and holder.pid == pid


async def test_session_with_a_snapshot_is_found_with_all_that_is_known_of_it(
    vitals: VitalsQueries, session: Connection
) -> None:
    pid = await take_snapshot(session)

    holder = await found(vitals, pid)

    assert (holder.kind, holder.name) == (HolderKind.SESSION, "")
    assert (holder.application, holder.state) == ("report", "idle in transaction")
    assert holder.user == await session.fetchval("SELECT current_user")
    assert holder.database == await session.fetchval("SELECT current_database()")
    assert holder.seconds is not None


async def test_hold_that_goes_on_is_known_again_older_and_over_when_it_ends(
    vitals: VitalsQueries, session: Connection, other: Connection
) -> None:
    pid = await take_snapshot(session)
    first = await found(vitals, pid)
    await use_up_transactions(other, 5)
    second = await found(vitals, pid)
    await session.execute("COMMIT")

    assert second.identity == first.identity
    assert second.transactions >= first.transactions + 5
    assert (second.seconds or 0) > (first.seconds or 0)
    assert not await is_shown(vitals, pid)


async def test_transaction_that_wrote_holds_without_a_snapshot(
    vitals: VitalsQueries, session: Connection
) -> None:
    xid = await write(session)

    holder = await found(vitals, session.get_server_pid())

    assert holder.xid == xid
    assert holder.state == "idle in transaction"


async def test_holder_is_the_one_furthest_back_in_transactions(
    vitals: VitalsQueries, session: Connection, other: Connection, database_dsn: str
) -> None:
    await session.execute("BEGIN")  # first, but without a snapshot or an id until the other has one
    holding = await take_snapshot(other)
    async with session_of(database_dsn) as third:
        await use_up_transactions(third, 1)
    await session.execute("SELECT pg_current_xact_id()")

    await found(vitals, holding)
    assert not await is_shown(vitals, session.get_server_pid())


async def test_idle_session_holds_nothing_back(vitals: VitalsQueries, session: Connection) -> None:
    await session.fetchval("SELECT 1")
    await session.execute("BEGIN")  # no snapshot yet, and no id

    assert not await is_shown(vitals, session.get_server_pid())


async def test_snapshot_in_another_database_is_none_of_our_business(
    vitals: VitalsQueries, cluster_dsn: str
) -> None:
    async with session_of(cluster_dsn) as elsewhere:
        pid = await take_snapshot(elsewhere)

        assert not await is_shown(vitals, pid)


async def test_transaction_that_wrote_in_another_database_holds_ours_back_too(
    vitals: VitalsQueries, cluster_dsn: str, session: Connection
) -> None:
    async with session_of(cluster_dsn) as elsewhere:
        xid = await write(elsewhere)
        await take_snapshot(session)
        reaches = "SELECT backend_xmin::text::bigint <= $1 FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert await session.fetchval(reaches, xid), "this is why it matters"
        await session.execute("COMMIT")

        holder = await found(vitals, elsewhere.get_server_pid())

    assert holder.database == urlsplit(cluster_dsn).path.removeprefix("/")


async def test_session_of_another_user_is_found_though_its_state_is_hidden(
    stranger_dsn: str, session: Connection
) -> None:
    pid = await take_snapshot(session)

    async with looking(stranger_dsn) as vitals:
        holder = await found(vitals, pid)

    assert (holder.kind, holder.application) == (HolderKind.SESSION, "report")
    assert holder.user == await session.fetchval("SELECT current_user")
    assert (holder.state, holder.seconds) == (None, None)


async def test_one_who_only_looks_back_to_an_open_transaction_is_not_taken_for_it(
    stranger_dsn: str, session: Connection
) -> None:
    """Not even by a role that sees when the former began and not when the latter did."""
    xid = await write(session)

    async with session_of(stranger_dsn) as onlooker, looking(stranger_dsn) as vitals:
        async with asyncio.timeout(PATIENCE_SECONDS):  # until no other session is in between
            while not await looks_back_to(onlooker, xid):
                await onlooker.execute("ROLLBACK")
        pid = onlooker.get_server_pid()
        await found(vitals, session.get_server_pid())
        assert not await is_shown(vitals, pid)


async def test_prepared_transaction_holds_until_it_is_ended(
    vitals: VitalsQueries, session: Connection
) -> None:
    if await session.fetchval("SELECT current_setting('max_prepared_transactions') = '0'"):
        pytest.skip("this server allows no prepared transactions")
    gid = f"forgotten-{os.getpid()}"
    await write(session)
    await session.execute(f"PREPARE TRANSACTION '{gid}'")
    try:
        holder = await found(vitals, None, gid)
    finally:
        await session.execute(f"ROLLBACK PREPARED '{gid}'")
    after = await vitals.oldest_holder()

    assert holder.kind == HolderKind.PREPARED
    assert holder.seconds is not None
    assert after is None or after.name != gid


async def test_session_that_vacuums_holds_nothing_back(
    vitals: VitalsQueries, session: Connection, other: Connection
) -> None:
    await session.execute("CREATE TABLE large AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 2000)")
    await session.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
    pid = session.get_server_pid()
    vacuum = asyncio.create_task(session.execute("VACUUM large"))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            has_a_snapshot = (
                "SELECT backend_xmin IS NOT NULL FROM pg_stat_progress_vacuum "
                "JOIN pg_stat_activity USING (pid) WHERE relid = 'large'::regclass"
            )
            while not await other.fetchval(has_a_snapshot):
                assert not vacuum.done(), "it was over before anybody looked"
                await asyncio.sleep(0.005)

        assert not await is_shown(vitals, pid)
    finally:
        # Until it is gone: before PostgreSQL 14 the function itself cannot wait.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await other.fetchval(  # noqa: ASYNC110
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1", pid
            ):
                await asyncio.sleep(0.005)
        await asyncio.gather(vacuum, return_exceptions=True)
