"""Roles with defaults of their own: our sessions set what they need, and nothing of it is the role's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database import connector
from pulse_server.database.connections import Database
from pulse_server.database.connector import Connector, own_transaction
from pulse_server.database.rights import wait_until_reachable
from pulse_server.database.schema import Migration, apply_migrations, known_migrations
from pulse_server.wakeups.line import PostgresWakeupLine
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import eventually
from tests.server.pulsed_process import run_pulsed
from tests.server.roles import role_in

OWNER = "GRANT ALL ON SCHEMA pulse TO {role}", "GRANT ALL ON ALL TABLES IN SCHEMA pulse TO {role}"
STRICT = (
    *OWNER,
    "ALTER ROLE {role} SET statement_timeout = '300ms'",
    "ALTER ROLE {role} SET lock_timeout = '50ms'",
    "ALTER ROLE {role} SET idle_in_transaction_session_timeout = '300ms'",
    "ALTER ROLE {role} SET default_transaction_isolation = 'serializable'",
    "GRANT CREATE ON DATABASE {database} TO {role}",  # to migrate
    "ALTER ROLE {role} SET search_path = public",
)
LATER = {"idle_session_timeout": 14, "transaction_timeout": 17}
SHOWN = """
SELECT current_setting('transaction_isolation') AS isolation,
       current_setting('statement_timeout') AS statement_timeout,
       current_setting('lock_timeout') AS lock_timeout,
       current_setting('search_path') AS search_path,
       current_setting('idle_session_timeout', true) AS idle_session_timeout,
       current_setting('transaction_timeout', true) AS transaction_timeout
"""


@pytest.fixture
async def strict_dsn(database_dsn: str) -> AsyncIterator[str]:
    observer = await asyncpg.connect(database_dsn, timeout=60)
    version = observer.get_server_version().major
    await observer.close(timeout=10)
    later = [f"ALTER ROLE {{role}} SET {name} = '300ms'" for name, since in LATER.items() if version >= since]
    async with role_in(database_dsn, *STRICT, *later) as (_, dsn):
        yield dsn


@pytest.mark.parametrize("behind_pooler", [False, True])
async def test_statements_have_their_own_settings_whatever_the_role_has(
    strict_dsn: str, behind_pooler: bool
) -> None:
    database = Database(strict_dsn, behind_pooler=behind_pooler)
    for name, connections in database.pools.items():
        ((row),) = await connections.fetch("shown", SHOWN)
        assert row["isolation"] == "read committed", name
        assert row["statement_timeout"] not in ("300ms", "0"), name
        assert row["lock_timeout"] != "50ms", name
        assert row["search_path"] == "pg_catalog", name
        if not behind_pooler:
            assert {row["idle_session_timeout"], row["transaction_timeout"]} <= {"0", None}, name
    await database.close()


async def test_wake_ups_arrive_past_the_timeouts_of_the_role(strict_dsn: str) -> None:
    heard: list[Wakeup] = []
    primary = Connector(strict_dsn)
    line, other = PostgresWakeupLine(primary), PostgresWakeupLine(primary)
    line.listen(heard.append)
    running = [asyncio.create_task(each.run()) for each in (line, other)]
    await eventually(lambda: len(heard) == 1, "the line is up")
    observer = await Connector(strict_dsn).connect()
    # Idle, and inside a statement, for longer than the role allows.
    await observer.execute("SELECT pg_sleep(0.6)")
    await asyncio.sleep(0.6)
    await observer.execute("SELECT")
    other.announce(Wakeup(topics=frozenset({"mail"})))

    await eventually(lambda: len(heard) == 2, "the wake-up is heard on the same line")
    assert not line._is_down
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await observer.close(timeout=10)


async def test_migration_takes_longer_than_the_role_allows(strict_dsn: str) -> None:
    slow = Migration(9001, "9001_slow", "SELECT pg_sleep(0.7); CREATE TABLE pulse.slow (id integer);")

    assert await apply_migrations(strict_dsn, [*known_migrations(), slow]) == ["9001_slow"]


async def test_first_statements_of_a_session_have_no_timeout_of_the_role(strict_dsn: str) -> None:
    """They are sent before it is known whether there is a pooler, which refuses settings of a session."""
    session = await Connector(strict_dsn, behind_pooler=True).connect()
    async with own_transaction(session):
        assert await session.fetchval("SELECT current_setting('statement_timeout')") == "0"
    await session.close(timeout=10)


async def test_sentence_at_the_start_names_the_statement_timeout(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role whose timeout ends the statement that begins a transaction."""
    monkeypatch.setattr(connector, "_IS_WRITABLE", "pg_sleep(30)::text = ''")
    monkeypatch.setattr(connector, "_BEGUN_WITH", "SET LOCAL search_path = pg_catalog")
    hasty = "ALTER ROLE {role} SET statement_timeout = '20ms'"
    async with role_in(database_dsn, *OWNER, hasty) as (_, dsn):
        with pytest.raises(Unavailable, match="ALTER ROLE … RESET statement_timeout;"):
            await wait_until_reachable(dsn, timedelta(seconds=2))


async def test_role_that_writes_nothing_is_named_with_what_helps(database_dsn: str) -> None:
    read_only = "ALTER ROLE {role} SET default_transaction_read_only = on"
    async with role_in(database_dsn, *OWNER, read_only) as (role, dsn):
        answers = await asyncio.gather(run_pulsed(DB_HOST=dsn), run_pulsed("check", DB_HOST=dsn))

    for code, output, errors in answers:
        assert code == 1
        printed = " ".join(f"{output}{errors}".split())
        assert f"The database is read-only for the role {role}." in printed
        assert f"ALTER ROLE {role} RESET default_transaction_read_only;" in printed
