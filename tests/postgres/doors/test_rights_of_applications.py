"""A role of an application: what it can do with the rights to enqueue and to complete, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from uuid import UUID

import asyncpg
import pytest

from pulse_server.database.rights import RIGHTS, grants
from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import Store
from tests.postgres.doors.application import application
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection

JOB = {"topic": "email", "payload": b"1"}
NO_JOB = Claim(str(UUID(int=1)), "A", 1, 1)
# The functions that a role may call.
DOORS = """
SELECT proc.proname::text FROM pg_proc AS proc
WHERE proc.pronamespace = 'pulse'::regnamespace
  AND has_function_privilege($1, proc.oid, 'EXECUTE')
"""
TABLES = """
SELECT format('pulse.%I', class.relname),
       has_table_privilege($1, class.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
       OR has_any_column_privilege($1, class.oid, 'SELECT, INSERT, UPDATE, REFERENCES')
FROM pg_class AS class
WHERE class.relnamespace = 'pulse'::regnamespace AND class.relkind IN ('r', 'p', 'v')
"""


def test_every_function_of_the_interface_belongs_to_one_right() -> None:
    files = resources.files("pulse_server.database").joinpath("interface").iterdir()
    granted = [name for names in RIGHTS.values() for name in names]

    assert sorted(granted) == sorted(file.name.removesuffix(".sql") for file in files)


def test_names_of_roles_are_quoted() -> None:
    assert grants({"enqueue": ['my "app"', "Web"], "complete": ["Web"]}) == [
        'GRANT USAGE ON SCHEMA pulse TO "my ""app""", "Web";',
        "GRANT EXECUTE ON FUNCTION pulse.enqueue, pulse.enqueue_json, pulse.enqueue_many, "
        "pulse.enqueue_workflow "
        'TO "my ""app""", "Web";',
        'GRANT EXECUTE ON FUNCTION pulse.complete_job TO "Web";',
    ]


async def test_role_with_both_rights_enqueues_and_completes(store: Store, app: Connection) -> None:
    async with app.transaction():
        plain, _, _ = await enqueue(app, **JOB)
        keyed, _, _ = await enqueue(app, **JOB, key="k", lane="l", unique_key="u")
        text = await app.fetchval("SELECT job_id FROM pulse.enqueue_json('email', '{\"a\": 1}')")
        many = await app.fetchval("SELECT pulse.enqueue_many('email', '{a,b}'::bytea[], keys => '{x,y}')")
    claims = await store.claim(count=10)
    assert {claim.job_id for claim in claims} == {plain, keyed, *map(str, (text, *many))}

    async with app.transaction():
        for claim in claims:
            await complete(app, claim, b"done")

    jobs = await store.repo.look_up_jobs([claim.job_id for claim in claims])
    assert {job.status for job in jobs.values()} == {JobStatus.COMPLETED}


@pytest.mark.parametrize("right", RIGHTS)
async def test_one_right_does_not_include_the_other(database_dsn: str, right: str) -> None:
    async with application(database_dsn, right) as (_, connection):
        calls = {"enqueue": enqueue(connection, **JOB), "complete": complete(connection, NO_JOB)}
        allowed = calls.pop(right)
        (refused,) = calls.values()
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await refused
        if right == "enqueue":
            await allowed
        else:
            with pytest.raises(asyncpg.PostgresError, match="no longer held"):
                await allowed


async def test_role_can_read_and_change_no_table(database_dsn: str, owner: Connection) -> None:
    async with application(database_dsn, "enqueue", "complete") as (role, app):
        tables = await owner.fetch(TABLES, role)
        assert len(tables) > 20
        for table, has_rights in tables:
            assert not has_rights, table
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.execute(f"SELECT FROM {table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await app.execute("CREATE FUNCTION pulse.now() RETURNS int LANGUAGE sql AS 'SELECT 1'")


async def test_functions_beside_the_interface_cannot_be_called_by_the_role(
    database_dsn: str, owner: Connection
) -> None:
    async with application(database_dsn, "enqueue", "complete") as (role, app):
        doors = {row["proname"] for row in await owner.fetch(DOORS, role)}
        assert doors == {name for names in RIGHTS.values() for name in names}
        for call in (
            "drop_completed_day_v1('2020-01-01', now())",
            "add_completed_days_v1('2020-01-01', 1)",
            "enqueue_rich_v1(gen_random_uuid(), 'email', '', 0, 1, 'k', NULL, NULL, NULL, NULL, NULL, NULL, "
            "NULL, NULL, NULL, NULL, false, false)",
            "sweep_limits_v1()",
            "forget_steps_v1(ARRAY[gen_random_uuid()])",
            "set_lane_v1('email', 'l', 1, NULL)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.execute(f"SELECT pulse.{call}")


async def test_functions_and_operators_of_the_caller_are_never_called(
    database_dsn: str, owner: Connection, store: Store
) -> None:
    async with application(database_dsn, "enqueue", "complete") as (role, app):
        await owner.execute(f"CREATE SCHEMA planted AUTHORIZATION {role}")
        await plant(app)
        await app.execute("SET search_path = planted, pg_catalog")
        with pytest.raises(asyncpg.RaiseError, match="planted"):
            await app.execute("SELECT clock_timestamp()")

        for options in (
            {},
            {"key": "k", "lane": "l", "priority": 3, "metadata": '{"a": "b"}'},
            {"unique_key": "t", "on_conflict": "throttle", "period": timedelta(hours=1)},
            {"unique_key": "u", "on_conflict": "replace"},
        ):
            await enqueue(app, **JOB, **options)
            await enqueue(app, **JOB, **options)
        await app.execute("SELECT pulse.enqueue_json('email', '{}'::pg_catalog.jsonb, delay => '1 s')")
        await app.execute("SELECT pulse.enqueue_many('email', '{a,b}', keys => '{x,y}')")
        for claim in await store.claim(count=10):
            await complete(app, claim, b"done")
        await app.execute("RESET search_path")


async def plant(app: Connection) -> None:
    """Functions and operators with the names and arguments of built-in ones, each of which raises."""
    functions = (
        ("clock_timestamp", "", "timestamptz"),
        ("now", "", "timestamptz"),
        ("octet_length", "bytea", "integer"),
        ("octet_length", "text", "integer"),
        ("num_nonnulls", "VARIADIC text[]", "integer"),
        ("cardinality", "uuid[]", "integer"),
        ("cardinality", "text[]", "integer"),
        ("unnest", "uuid[]", "SETOF uuid"),
        ("unnest", "text[]", "SETOF text"),
        ("unnest", "bytea[]", "SETOF bytea"),
        ("substr", "text, integer, integer", "text"),
        ("format", "text, VARIADIC text[]", "text"),
        ("gen_random_uuid", "", "uuid"),
        ("date_part", "text, interval", "float8"),
        ("convert_to", "text, name", "bytea"),
        ("array_position", "bytea[], bytea", "integer"),
        ("current_setting", "text", "text"),
        ("generate_series", "integer, integer", "SETOF integer"),
    )
    operators = (
        *(("=", kind, kind, "boolean") for kind in ("uuid", "text", "integer", "boolean")),
        *((sign, "integer", "integer", "boolean") for sign in ("<", "<=", ">", ">=", "<>")),
        *(("~", "text", "text", "boolean"), ("<>", "text", "text", "boolean")),
        *((sign, "timestamptz", "timestamptz", "boolean") for sign in ("<", "<=", ">", ">=")),
        *(("+", "timestamptz", "interval", "timestamptz"), ("-", "timestamptz", "interval", "timestamptz")),
        ("||", "text", "text", "text"),
    )
    for name, arguments, result in functions:
        await app.execute(_planted(name, arguments, result))
    for number, (sign, left, right, result) in enumerate(operators):
        await app.execute(_planted(f"operator_{number}", f"{left}, {right}", result))
        await app.execute(
            f"CREATE OPERATOR planted.{sign} "
            f"(FUNCTION = planted.operator_{number}, LEFTARG = {left}, RIGHTARG = {right})"
        )
    # A temporary table and a type of a name in the schema or the catalog.
    await app.execute("CREATE TEMPORARY TABLE jobs (id int); CREATE TYPE pg_temp.uuid AS ENUM ('planted')")


def _planted(name: str, arguments: str, result: str) -> str:
    return (
        f"CREATE FUNCTION planted.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql "
        f"AS $$ BEGIN RAISE EXCEPTION 'planted: {name}'; END $$"
    )


async def test_row_level_security_does_not_matter_to_the_owner_of_the_functions(
    owner: Connection, store: Store, app: Connection
) -> None:
    await owner.execute(
        "ALTER TABLE pulse.jobs ENABLE ROW LEVEL SECURITY; "
        "ALTER TABLE pulse.completed_jobs ENABLE ROW LEVEL SECURITY"
    )
    await app.execute("SET row_security = off")  # an error, if a policy would apply

    job_id, _, _ = await enqueue(app, **JOB, key="k")
    (claim,) = await store.claim()
    await complete(app, claim)

    assert await enqueue(app, **JOB, key="k") == (job_id, True, False)


async def test_caller_sees_the_id_of_a_job_with_its_key_and_no_more(store: Store, app: Connection) -> None:
    """Also of a job that another application has stored, if the topic and the key are equal."""
    job_id, _, _ = await enqueue(app, topic="email", payload=b"secret", key="k")

    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await enqueue(app, topic="email", payload=b"guess", key="k")

    assert refused.value.as_dict()["detail"] == job_id
    assert "secret" not in str(refused.value.as_dict())
    (claim,) = await store.claim()
    with pytest.raises(asyncpg.PostgresError, match="no longer held") as lost:
        await complete(app, claim._replace(worker_id="B"))
    assert "secret" not in str(lost.value.as_dict())
