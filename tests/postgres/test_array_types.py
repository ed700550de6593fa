"""No session has to ask its server what the arrays of a statement are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse_server.database import connector
from pulse_server.database.connector import Connector, DatabaseSession
from pulse_server.database.statements import statements
from tests.postgres.sql_files import FILES


@pytest.fixture
async def session(database_dsn: str) -> AsyncIterator[DatabaseSession]:
    session = await Connector(database_dsn).connect()
    yield session
    session.terminate()


async def asked_for(session: asyncpg.Connection[asyncpg.Record], statement: str) -> list[str]:
    """What the driver asks the server before it can send the statement."""
    asked: list[str] = []
    with session.query_logger(lambda record: asked.append(record.query)):
        await session.prepare(statement)
    return asked


@pytest.mark.parametrize("file", FILES)
async def test_statements_of_a_session_need_no_question(session: DatabaseSession, file: str) -> None:
    for statement in statements(file).values():
        # A statement about one day of completed jobs is completed with the name of its partition.
        of_a_day = statement.replace("pulse.completed_jobs_day", "pulse.completed_jobs_default")
        assert await asked_for(session, of_a_day) == []


async def test_look_at_all_topics_has_no_array_that_the_driver_encodes_name_by_name(
    session: DatabaseSession,
) -> None:
    """There may be a hundred thousand, and no other call is served meanwhile."""
    prepared = await session.prepare(statements("jobs/queries.sql")["topics_with_ready_jobs"])

    assert [parameter.name for parameter in prepared.get_parameters()] == ["text"]


async def test_completion_has_no_array_that_the_driver_encodes_entry_by_entry(
    session: DatabaseSession,
) -> None:
    """A batch has a thousand claims, and their workers are a few."""
    prepared = await session.prepare(statements("jobs/transitions/work.sql")["complete_jobs"])

    types = [parameter.name for parameter in prepared.get_parameters()]
    assert types == ["text", "text[]", "text", "text", "text", "bytea[]"]


async def test_driver_queries_the_types_of_a_session_without_registered_ones(database_dsn: str) -> None:
    """Else the test above proves nothing."""
    untold = await asyncpg.connect(database_dsn)
    assert await asked_for(untold, "SELECT $1::uuid[]")
    untold.terminate()


async def test_types_are_as_the_server_has_them(session: DatabaseSession) -> None:
    listed = [(kind["oid"], kind["name"], kind["elemtype"], kind["elemdelim"]) for kind in connector.TYPES]
    known = await session.fetch(
        "SELECT oid, typname, typelem, typdelim::text FROM pg_type WHERE oid = ANY($1::oid[])",
        [oid for oid, *_ in listed],
    )
    assert sorted(listed) == sorted(map(tuple, known))


async def test_driver_without_the_method_queries_the_types(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "TYPES", [{"oid": 2951}])
    session = await Connector(database_dsn).connect()
    assert await session.fetchval("SELECT $1::uuid[]", []) == []
    session.terminate()
