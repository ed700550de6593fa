"""What the store says when the database cannot help, and that it comes back by itself."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from faults.proxy import database_proxy
from pulse_server.base import tuning
from pulse_server.base.errors import ResourceExhausted, Unavailable
from pulse_server.database import rights
from pulse_server.database.connections import Database
from pulse_server.database.connector import translated
from pulse_server.database.rights import wait_until_reachable
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.work.submissions import Submissions
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.replica import Replica
from tests.fakes.store import LEASE, Store, a_job
from tests.postgres.sessions import Connection, cut_sessions, no_session_waits
from tests.rows import each_row

UNREACHABLE = "postgresql://postgres@127.0.0.1:1/nowhere"


@pytest.fixture
async def hasty(
    shared_dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresJobRepo]:
    """A store that gives a statement a quarter of a second."""
    monkeypatch.setattr(tuning, "STATEMENT_TIMEOUT", timedelta(seconds=0.25))
    database = Database(shared_dsn)
    yield PostgresJobRepo(database)
    await database.close()


async def test_sessions_that_were_cut_are_an_outage_that_ends_by_itself(
    store: Store, connection: Connection
) -> None:
    claim = await store.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(10):  # the end of a session may be noticed before, while or after a statement is sent
            await cut_sessions(connection, "pulsed")
            while True:
                try:
                    assert await store.repo.current_claims([claim]) == {claim}
                    break
                except Unavailable:
                    continue


@each_row(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("another operation is in progress"),
        asyncpg.ConnectionDoesNotExistError(),
        asyncpg.TooManyConnectionsError(),
        asyncpg.AdminShutdownError(),
        asyncpg.CannotConnectNowError(),
        asyncpg.QueryCanceledError(),
        asyncpg.ReadOnlySQLTransactionError(),
        asyncpg.DeadlockDetectedError(),
        asyncpg.LockNotAvailableError(),
    ],
)
def test_trouble_that_passes_is_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable, match=type(error).__name__), translated("claim_batch"):
        raise error


@each_row("error", [asyncpg.DiskFullError(), asyncpg.OutOfMemoryError()])
def test_database_without_room_is_exhausted(error: Exception) -> None:
    with pytest.raises(ResourceExhausted), translated("insert_jobs"):
        raise error


@each_row("bug", [asyncpg.UndefinedColumnError(), asyncpg.CheckViolationError(), KeyError()])
def test_bug_is_let_through(bug: Exception) -> None:
    with pytest.raises(type(bug)), translated("insert_jobs"):
        raise bug


async def test_statement_that_must_wait_too_long_is_unavailable_and_changes_nothing(
    store: Store, hasty: PostgresJobRepo, connection: Connection, second_connection: Connection
) -> None:
    claim = await store.start()
    await second_connection.execute("BEGIN; LOCK TABLE pulse.jobs IN SHARE MODE")

    with pytest.raises(Unavailable, match="complete_jobs"):
        await hasty.complete_jobs([claim])
    await no_session_waits(connection)  # on a busy machine the server gives up a moment after its client
    await second_connection.execute("ROLLBACK")

    assert set(await store.repo.complete_jobs([claim])) == {claim}


async def test_database_that_is_away_is_unavailable() -> None:
    database = Database(UNREACHABLE)
    try:
        with pytest.raises(Unavailable, match="Try again"):
            await PostgresJobRepo(database).database_now()
    finally:
        await database.close()


async def test_start_gives_up_on_a_database_that_does_not_answer() -> None:
    with pytest.raises(Unavailable, match="The database does not answer"):
        await wait_until_reachable(UNREACHABLE, timedelta(seconds=0.1))


async def test_database_without_the_tls_of_its_url_has_an_error_of_its_own() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # "would you speak TLS?"
        writer.write(b"N")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="speaks no TLS"):
            await wait_until_reachable(
                f"postgres://pulse@127.0.0.1:{port}/pulse?sslmode=require", timedelta(seconds=0.1)
            )


@asynccontextmanager
async def recovering_database(refused: asyncio.Queue[int]) -> AsyncIterator[int]:
    """Responds to each connection that it starts up. Yields its port."""

    async def recover(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # "would you speak TLS?"
        writer.write(b"N")
        await reader.read(1)
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        writer.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)
        writer.close()
        refused.put_nowait(1)

    async with await asyncio.start_server(recover, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@each_row("hosts", [1, 2])
async def test_start_waits_for_a_database_that_recovers_however_long_it_takes(hosts: int) -> None:
    """It responds so to each connection, for longer than the start waits for one that does not respond."""
    refused = asyncio.Queue[int]()
    async with recovering_database(refused) as port:
        places = ",".join([f"127.0.0.1:{port}", "127.0.0.1:1"][:hosts])
        waiting = asyncio.create_task(wait_until_reachable(f"postgres://pulse@{places}/pulse", timedelta(0)))
        for _ in range(3):
            asked = asyncio.create_task(refused.get())
            await asyncio.wait({asked, waiting}, return_when=asyncio.FIRST_COMPLETED)
            assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_start_gives_up_on_a_database_that_recovers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "RECOVERY_PATIENCE", timedelta(0))
    async with recovering_database(asyncio.Queue()) as port:
        with pytest.raises(Unavailable, match="does not answer: the database system is starting up"):
            await wait_until_reachable(f"postgres://pulse@127.0.0.1:{port}/pulse", timedelta(minutes=10))


async def test_start_does_not_wait_for_a_database_that_does_not_exist(shared_dsn: str) -> None:
    unknown = urlsplit(shared_dsn)._replace(path="/no_such_database").geturl()

    with pytest.raises(Unavailable, match="refuses the connection"):
        await wait_until_reachable(unknown, timedelta(minutes=10))


async def test_start_tries_again_when_the_database_hangs_up_on_it(shared_dsn: str) -> None:
    """As one does that restarts, or whose server is killed, while a client connects."""
    async with database_proxy(shared_dsn) as (proxy, dsn):
        with proxy.freeze(after=b"user") as silence:
            waiting = asyncio.create_task(wait_until_reachable(dsn, timedelta(minutes=10)))
            await silence.has_begun.wait()
            proxy.cut()
        await waiting


async def test_bug_is_not_dressed_up_as_an_outage(store: Store) -> None:
    with pytest.raises(asyncpg.DataError):
        await store.repo.insert_jobs([a_job(priority=2**40)])


async def test_job_that_cannot_be_stored_is_refused_alone(store: Store) -> None:
    replica = Replica()
    submissions = Submissions(store.repo, replica.hub, replica.publisher)
    good = [a_job() for _ in range(6)]
    requests = [[job] for job in good]
    requests[3:3] = [[a_job(priority=2**40)]]

    answers = await asyncio.gather(
        *[submissions.submit(request) for request in requests], return_exceptions=True
    )

    assert isinstance(answers.pop(3), asyncpg.DataError)
    assert answers == [[Submitted(job.id, False)] for job in good]


async def test_callers_that_give_up_cost_no_connection_for_good(store: Store) -> None:
    claim = await store.start()
    for _ in range(3 * tuning.HOT_CONNECTIONS):
        abandoned = asyncio.create_task(store.repo.current_claims([claim]))
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.wait([abandoned])

    assert (await store.repo.extend_leases([claim], LEASE)).extended == {claim}
    assert await store.repo.current_claims([claim]) == {claim}
