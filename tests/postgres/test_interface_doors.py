"""A role of an application: what it can do with the rights to enqueue and to complete, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import resources
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse_server.domain.jobs import Claim
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.interface import RIGHTS, grants
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.postgres.migrations.functions import Function, known_functions
from pulse_server.postgres.migrations.runner import apply_migrations
from pulse_server.postgres.migrations.schema import known_migrations
from tests.fakes.store import Store
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection
from tests.server.roles import execute, role_in

JOB = {"topic": "email", "payload": b"1"}
NO_JOB = Claim(str(UUID(int=1)), "A", 1, 1)
# They act for their owner, and a role without rights on the tables may call them.
DOORS = """
SELECT proc.proname::text FROM pg_proc AS proc
WHERE proc.pronamespace = 'pulse'::regnamespace AND proc.prosecdef
  AND has_function_privilege($1, proc.oid, 'EXECUTE')
"""
TABLES = """
SELECT format('pulse.%I', class.relname),
       has_table_privilege($1, class.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
       OR has_any_column_privilege($1, class.oid, 'SELECT, INSERT, UPDATE, REFERENCES')
FROM pg_class AS class
WHERE class.relnamespace = 'pulse'::regnamespace AND class.relkind IN ('r', 'p', 'v')
"""


@pytest.fixture
async def owner(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_dsn, timeout=60)
    yield connection
    connection.terminate()


@pytest.fixture
async def store(database_dsn: str, owner: Connection) -> AsyncIterator[Store]:
    database = Database(database_dsn)
    yield Store(PostgresJobRepo(database), PostgresTimeMachine(owner))
    await database.close()


@asynccontextmanager
async def application(dsn: str, *rights: str) -> AsyncIterator[tuple[str, Connection]]:
    """A role with the rights that `pulsed grants` prints, and a session of it."""
    async with role_in(dsn) as (role, as_role):
        await execute(dsn, *grants({right: [role] for right in rights}))
        connection = await asyncpg.connect(as_role, timeout=60)
        try:
            yield role, connection
        finally:
            await connection.close(timeout=10)


@pytest.fixture
async def app(database_dsn: str) -> AsyncIterator[Connection]:
    """A session of a role with both rights."""
    async with application(database_dsn, "enqueue", "complete") as (_, connection):
        yield connection


def test_every_function_of_the_interface_belongs_to_one_right() -> None:
    files = resources.files("pulse_server.postgres").joinpath("sql", "interface").iterdir()
    granted = [name for names in RIGHTS.values() for name in names]

    assert sorted(granted) == sorted(file.name.removesuffix(".sql") for file in files)


def test_names_of_roles_are_quoted() -> None:
    assert grants({"enqueue": ['my "app"', "Web"], "complete": ["Web"]}) == [
        'GRANT USAGE ON SCHEMA pulse TO "my ""app""", "Web";',
        "GRANT EXECUTE ON FUNCTION pulse.enqueue, pulse.enqueue_json, pulse.enqueue_many "
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


async def test_functions_beside_the_interface_have_no_effect_for_the_role(
    database_dsn: str, owner: Connection
) -> None:
    """Functions that act for their owner cannot be called. The others meet the rights of the caller."""
    async with application(database_dsn, "enqueue", "complete") as (role, app):
        doors = {row["proname"] for row in await owner.fetch(DOORS, role)}
        assert doors == {name for names in RIGHTS.values() for name in names}
        for call in (
            "drop_completed_day_v1('2020-01-01', now())",
            "add_completed_days_v1('2020-01-01', 1)",
            "enqueue_rich_v1(gen_random_uuid(), 'email', '', 0, 1, 'k', NULL, NULL, NULL, NULL, NULL, NULL, "
            "NULL, NULL, NULL, NULL, false)",
            "sweep_flow_v1()",
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


async def test_rights_survive_a_migration_that_replaces_the_functions(
    database_dsn: str, owner: Connection, app: Connection
) -> None:
    interface = [name for names in RIGHTS.values() for name in names]
    replaced = [
        Function(function.name, f"{function.sql}\n-- improved")
        for function in known_functions()
        if function.name in interface
    ]
    prepared = await app.prepare("SELECT job_id FROM pulse.enqueue($1, $2)")
    await prepared.fetchval("email", b"1")

    assert await apply_migrations(database_dsn, known_migrations(), replaced) == ["functions"]

    await prepared.fetchval("email", b"1")
    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(app, NO_JOB)
    assert not await owner.fetchval(
        "SELECT count(*) FROM pg_proc, aclexplode(proacl) AS granted "
        "WHERE pronamespace = 'pulse'::regnamespace AND proname = ANY($1) AND granted.grantee = 0",
        interface,
    )


async def test_rights_survive_a_migration_that_adds_a_parameter(
    database_dsn: str, owner: Connection, app: Connection
) -> None:
    (function,) = [each for each in known_functions() if each.name == "complete_job"]
    last = "result bytea DEFAULT NULL"
    assert last in function.sql
    wider = Function("complete_job", function.sql.replace(last, f"{last}, reason text DEFAULT NULL"))
    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(app, NO_JOB)

    assert await apply_migrations(database_dsn, known_migrations(), [wider]) == ["functions"]

    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(app, NO_JOB)
    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await app.execute("SELECT pulse.complete_job($1, 'A', 1, reason => 'x')", UUID(int=1))
    roles = await owner.fetch(
        "SELECT granted.grantee FROM pg_proc, aclexplode(proacl) AS granted "
        "WHERE pronamespace = 'pulse'::regnamespace AND proname = 'complete_job'"
    )
    assert len(roles) == 2, "the owner and the application"


async def test_prepared_statement_works_past_its_generic_plan(app: Connection, owner: Connection) -> None:
    plain = await app.prepare("SELECT job_id FROM pulse.enqueue($1, $2)")
    keyed = await app.prepare("SELECT duplicate FROM pulse.enqueue($1, $2, key => $3)")
    for _ in range(10):
        await plain.fetchval("email", b"1")

    assert [await keyed.fetchval("email", b"1", str(n // 2)) for n in range(20)] == [False, True] * 10
    assert await owner.fetchval("SELECT count(*) FROM pulse.jobs") == 20


async def test_trigger_of_the_application_enqueues_with_its_row(database_dsn: str, owner: Connection) -> None:
    async with application(database_dsn, "enqueue") as (role, app):
        await owner.execute(f"CREATE SCHEMA shop AUTHORIZATION {role}")
        await app.execute(
            """
            CREATE TABLE shop.orders (id int PRIMARY KEY, total int);
            CREATE FUNCTION shop.send_receipt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pulse.enqueue_json(
                    'receipt', jsonb_build_object('order', NEW.id), key => 'receipt-' || NEW.id);
                RETURN NULL;
            END $$;
            CREATE TRIGGER receipt AFTER INSERT ON shop.orders
                FOR EACH ROW EXECUTE FUNCTION shop.send_receipt();
            """
        )
        await app.execute("INSERT INTO shop.orders SELECT n, 90 FROM generate_series(1, 3) AS n")
        with pytest.raises(asyncpg.UniqueViolationError):
            await app.execute("INSERT INTO shop.orders VALUES (4, 90), (3, 90)")

    stored = await owner.fetch("SELECT convert_from(payload, 'UTF8') AS text FROM pulse.jobs ORDER BY 1")
    assert [row["text"] for row in stored] == [f'{{"order": {n}}}' for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "setting",
    [
        *("timezone = 'Pacific/Kiritimati'", "datestyle = 'German, DMY'", "intervalstyle = 'iso_8601'"),
        *("bytea_output = 'escape'", "standard_conforming_strings = off", "enable_indexscan = off"),
    ],
)
async def test_settings_of_the_session_change_nothing(store: Store, app: Connection, setting: str) -> None:
    await app.execute(f"SET {setting}")
    options: dict[str, Any] = {"key": "k\\", "metadata": '{"a": "\\\\b"}', "lane": "l"}

    job_id, _, _ = await enqueue(app, topic="email", payload=b"\\x00\x00", **options)
    again = await enqueue(app, topic="email", payload=b"\\x00\x00", **options)
    (claim,) = await store.claim()
    await complete(app, claim, b"\x00\\")

    assert again == (job_id, True, False)
    job = await store.repo.get_job(job_id)
    assert job is not None
    assert (job.payload, job.result, job.metadata) == (b"\\x00\x00", b"\x00\\", {"a": "\\b"})
