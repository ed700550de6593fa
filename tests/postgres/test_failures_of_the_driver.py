"""What becomes of an error of the database on its way up: its status, and what its message may reveal."""

import asyncio
import urllib.parse

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connector import translated

INSERT = """
    INSERT INTO pulse.jobs (id, topic, payload, metadata)
    VALUES (gen_random_uuid(), 'mail', 'sesame', '{"token": "sesame"}')
"""


async def test_bug_is_let_through_without_what_is_in_the_row(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    with pytest.raises(asyncpg.NotNullViolationError) as raw:
        await connection.execute(INSERT)
    assert "sesame" in str(raw.value)

    with pytest.raises(asyncpg.NotNullViolationError) as caught, translated("insert_jobs"):
        await connection.execute(INSERT)

    assert "sesame" not in str(caught.value)
    assert "violates not-null constraint" in str(caught.value)
    await connection.close()


async def test_database_that_is_closed_to_connections_is_unavailable(
    cluster_dsn: str, database_dsn: str
) -> None:
    name = urllib.parse.urlsplit(database_dsn).path.removeprefix("/")
    operator = await asyncpg.connect(cluster_dsn)
    await operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")

    with pytest.raises(Unavailable), translated("connect"):
        await asyncpg.connect(database_dsn)

    await operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await operator.close()


async def test_database_that_is_not_there_any_more_is_unavailable(cluster_dsn: str) -> None:
    parts = urllib.parse.urlsplit(cluster_dsn)
    with pytest.raises(Unavailable), translated("connect"):
        await asyncpg.connect(urllib.parse.urlunsplit(parts._replace(path="/nowhere")))


async def test_deadlock_is_called_a_conflict_and_not_silence(database_dsn: str) -> None:
    one, other = [await asyncpg.connect(database_dsn) for _ in range(2)]
    await one.execute("CREATE TABLE rows (id int PRIMARY KEY); INSERT INTO rows VALUES (1), (2)")
    lock = "SELECT FROM rows WHERE id = $1 FOR UPDATE"
    await one.execute("BEGIN")
    await other.execute("BEGIN")
    await one.execute(lock, 1)
    await other.execute(lock, 2)
    crossing = [asyncio.create_task(one.execute(lock, 2)), asyncio.create_task(other.execute(lock, 1))]

    with pytest.raises(Unavailable) as caught, translated("insert_jobs"):
        await asyncio.gather(*crossing)

    await asyncio.wait(crossing)
    one.terminate()
    other.terminate()

    assert "because of a conflict with another one" in str(caught.value)
