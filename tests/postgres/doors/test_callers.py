"""Rights survive migrations, and the interface works from triggers and from sessions with odd settings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse_server.database.rights import RIGHTS
from pulse_server.database.schema import Function, apply_migrations, known_functions, known_migrations
from pulse_server.jobs.rules import Claim
from tests.fakes.store import Store
from tests.postgres.doors.application import application
from tests.postgres.interface import complete, enqueue, token_of
from tests.postgres.sessions import Connection

JOB = {"topic": "email", "payload": b"1"}
NO_JOB = Claim(str(UUID(int=1)), "A", 1, 1)


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
        await app.execute(
            "SELECT pulse.complete_job($1, 'A', 1, $2, reason => 'x')", UUID(int=1), token_of(NO_JOB)
        )
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
