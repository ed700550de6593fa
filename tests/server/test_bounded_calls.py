"""The database freezes: each call ends, with an error."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import asyncpg
import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Connections, Database
from pulse_server.database.connector import Connector
from pulse_server.database.rights import wait_until_reachable
from pulse_server.database.schema import _LOCK_KEY, apply_migrations, migration_status, require_current_schema
from pulse_server.wakeups.line import PostgresWakeupLine
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import PATIENCE_SECONDS
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres

pytestmark = pytest.mark.skipif(not CAN_FREEZE, reason="finds the server's processes in /proc")

HALF_A_SECOND = timedelta(seconds=0.5)
AFTER_A_BREAK = Wakeup(topics=None, gate_changed=True, claims_unknown=True, settings_changed=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutagePostgres]:
    server = OutagePostgres(tmp_path_factory.mktemp("frozen") / "cluster")
    server.start()
    yield server
    server.close()


@pytest.fixture
def dsn(server: OutagePostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a database that has thawed by the end of the test."""
    bounds = (
        "pulse_server.base.tuning.STATEMENT_TIMEOUT",
        "pulse_server.database.connector.CONNECT_TIMEOUT",
        "pulse_server.database.connections.READ_TIMEOUT",
        "pulse_server.database.connections.READY_TIMEOUT",
        "pulse_server.wakeups.line.LISTEN_CHECK",
        "pulse_server.wakeups.line.LISTEN_RETRY",
    )
    for name in bounds:
        monkeypatch.setattr(name, HALF_A_SECOND)
    yield server.dsn
    server.thaw()


@pytest.mark.parametrize("call", [apply_migrations, migration_status, require_current_schema])
async def test_schema_cannot_be_seen_or_changed(
    server: OutagePostgres, dsn: str, call: Callable[[str], Awaitable[object]]
) -> None:
    server.freeze()

    with pytest.raises(Unavailable, match="did not answer"):
        await asyncio.wait_for(call(dsn), PATIENCE_SECONDS)


async def test_server_that_waits_for_its_turn_to_migrate_gives_up(server: OutagePostgres, dsn: str) -> None:
    other = await asyncpg.connect(dsn, timeout=PATIENCE_SECONDS)
    await other.execute("SELECT pg_advisory_lock($1)", _LOCK_KEY)
    asking = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid()"
    )
    migrating = asyncio.create_task(apply_migrations(dsn))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await other.fetchval(asking):
            if migrating.done():  # a busy machine does not answer in half a second
                assert isinstance(migrating.exception(), Unavailable)
                migrating = asyncio.create_task(apply_migrations(dsn))
    server.freeze()

    with pytest.raises(Unavailable, match="did not answer"):
        await asyncio.wait_for(migrating, PATIENCE_SECONDS)
    other.terminate()


async def test_start_does_not_wait_for_ever(server: OutagePostgres, dsn: str) -> None:
    server.freeze()

    with pytest.raises(Unavailable, match="does not answer"):
        await asyncio.wait_for(wait_until_reachable(dsn, HALF_A_SECOND), PATIENCE_SECONDS)


@pytest.mark.parametrize("behind_pooler", [False, True])
async def test_statements_of_every_pool_end_however_many_wait(
    server: OutagePostgres, dsn: str, behind_pooler: bool
) -> None:
    database = Database(dsn, behind_pooler=behind_pooler)

    async def ask(connections: Connections) -> None:
        await connections.fetch("ask", "SELECT 1")

    async def open_connection(connections: Connections) -> None:
        while True:
            with suppress(Unavailable):  # a busy machine does not answer in half a second
                return await ask(connections)

    pools = list(database.pools.values())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*[open_connection(pool) for pool in pools])
    server.freeze()
    asked = [ask(pool) for pool in pools for _ in range(2 * tuning.HOT_CONNECTIONS)]
    answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE_SECONDS)

    assert {type(answer) for answer in answers} == {Unavailable}
    await asyncio.wait_for(database.close(), PATIENCE_SECONDS)


async def test_line_on_which_all_is_quiet_is_found_dead_and_comes_back(
    server: OutagePostgres, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await asyncpg.connect(dsn, timeout=PATIENCE_SECONDS)
    await connection.execute(
        "CREATE SCHEMA pulse; CREATE TABLE pulse.cluster_secret AS SELECT 1 AS id, sha256('') AS secret"
    )
    line = PostgresWakeupLine(Connector(dsn))
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    line.listen(heard.put_nowait)
    running = asyncio.create_task(line.run())
    assert await asyncio.wait_for(heard.get(), PATIENCE_SECONDS) == AFTER_A_BREAK

    server.freeze()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "wakeups_down" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
    server.thaw()
    assert await asyncio.wait_for(heard.get(), PATIENCE_SECONDS) == AFTER_A_BREAK

    running.cancel()
    await asyncio.wait([running])
    connection.terminate()
