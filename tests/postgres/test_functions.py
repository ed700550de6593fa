"""Functions of the database: made by files, installed by checksum, under names that end with a version."""

from __future__ import annotations

import re
from dataclasses import replace

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.database.schema import (
    Function,
    SchemaBehind,
    SchemaMismatch,
    apply_migrations,
    known_functions,
    known_migrations,
    require_current_schema,
    require_usable_schema,
)
from pulse_server.database.statements import statements
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import FILES

NAMES = {function.name for function in known_functions()}
# Applications call these: test_interface.py holds their signatures.
INTERFACE = {"enqueue", "enqueue_json", "enqueue_many", "enqueue_workflow", "complete_job"}
TABLES = re.compile(r"CREATE (?:(?:UNLOGGED )?TABLE|VIEW) pulse\.(\w+)")
FIRST = Function(
    "number_v1", "CREATE OR REPLACE FUNCTION pulse.number_v1() RETURNS int LANGUAGE sql AS 'SELECT 1'"
)
SECOND = Function("number_v2", FIRST.sql.replace("_v1", "_v2"))
BROKEN = Function("text_v1", "CREATE OR REPLACE FUNCTION pulse.text_v1() RETURNS nothing LANGUAGE sql AS ''")


async def install(dsn: str, *functions: Function) -> list[str]:
    return await apply_migrations(dsn, known_migrations(), functions)


async def test_every_function_of_the_schema_is_made_by_a_file(connection: Connection) -> None:
    rows = await connection.fetch(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pulse'::regnamespace"
    )

    assert sorted(row["proname"] for row in rows) == sorted(NAMES)


def test_names_of_functions_end_with_a_version_and_each_file_makes_one() -> None:
    for function in known_functions():
        assert re.findall(r"CREATE OR REPLACE FUNCTION pulse\.(\w+)", function.sql) == [function.name]
        assert function.name in INTERFACE or re.search(r"_v[1-9]\d*$", function.name)


def test_statements_and_functions_call_functions_by_their_versions() -> None:
    """What they name in the schema and call is a function that has a file, or a table with its columns."""
    tables = set(TABLES.findall(" ".join(migration.sql for migration in known_migrations())))
    texts = [statement for file in FILES for statement in statements(file).values()]
    called = {
        name
        for text in [*texts, *(function.sql for function in known_functions())]
        for name in re.findall(r"\bpulse\.(\w+) ?\(", text)
    }

    assert called - tables <= NAMES


async def test_no_function_is_for_every_role(connection: Connection) -> None:
    """A role gets them with the rights to serve, to enqueue or to complete. None is needed for less: the
    views, constraints, defaults and indexes of the schema call none of them, so neither does a role that
    reads. A trigger runs without the right of the role that meets it."""
    rows = await connection.fetch(
        """SELECT proname::text
           FROM pg_proc AS function, aclexplode(COALESCE(proacl, acldefault('f', proowner))) AS granted
           WHERE pronamespace = 'pulse'::regnamespace AND granted.grantee = 0"""
    )
    called = await connection.fetch(
        """SELECT DISTINCT depend.classid::regclass::text
           FROM pg_depend AS depend
           JOIN pg_proc AS function ON function.oid = depend.refobjid
           WHERE depend.refclassid = 'pg_proc'::regclass AND function.pronamespace = 'pulse'::regnamespace
             AND depend.classid <> 'pg_proc'::regclass"""
    )

    assert [row["proname"] for row in rows] == []
    assert [row["classid"] for row in called] == ["pg_trigger"]


async def test_bodies_are_valid_once_all_functions_are_there(connection: Connection) -> None:
    """They are installed unchecked, since they call each other."""
    await connection.execute("SET check_function_bodies = on")
    for function in known_functions():
        await connection.execute(function.sql)


async def test_text_that_differs_is_replaced_and_the_others_are_left_alone(database_dsn: str) -> None:
    assert await install(database_dsn, FIRST, SECOND) == ["functions"]
    versions = "SELECT array_agg(xmin::text ORDER BY proname) FROM pg_proc WHERE proname LIKE 'number_v_'"
    connection = await asyncpg.connect(database_dsn)
    before = await connection.fetchval(versions)

    assert await install(database_dsn, replace(FIRST, sql=FIRST.sql.replace("1'", "7'")), SECOND) == [
        "functions"
    ]

    after = await connection.fetchval(versions)
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)
    assert await connection.fetchval("SELECT pulse.number_v1()") == 7
    assert await connection.fetchval("SELECT pulse.number_v2()") == 1, "that of the servers of before"
    await connection.close()


async def test_functions_are_installed_all_or_none(database_dsn: str) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError):
        await install(database_dsn, FIRST, BROKEN)

    assert await install(database_dsn, FIRST) == ["functions"]
    assert await install(database_dsn, FIRST) == []


async def test_server_refuses_a_database_that_lacks_a_function_and_accepts_other_text(
    database_dsn: str,
) -> None:
    """Other text is that of a newer server in a rollout; under the same name it means the same."""
    connection = await asyncpg.connect(database_dsn)
    database = Database(database_dsn)
    try:
        await connection.execute("COMMENT ON FUNCTION pulse.line_up_v1 IS 'of another build'")
        await require_current_schema(database_dsn)
        await require_usable_schema(database.probe)

        await connection.execute("DROP FUNCTION pulse.line_up_v1")
        with pytest.raises(SchemaBehind, match=r"line_up_v1 not applied.*`pulsed migrate`"):
            await require_current_schema(database_dsn)
        with pytest.raises(SchemaMismatch, match="lacks line_up_v1"):
            await require_usable_schema(database.probe)

        assert await apply_migrations(database_dsn) == ["functions"]
        await require_current_schema(database_dsn)
    finally:
        await database.close()
        await connection.close()
