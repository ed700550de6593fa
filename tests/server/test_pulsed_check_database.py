"""What `pulsed check` finds of the database, its own or the embedded one."""

import fcntl
import os
import re
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from pulse_server import checks as database_checks
from pulse_server.database.connections import Database
from pulse_server.embedded import directory as embedded_directory
from pulse_server.settings import Settings
from tests.postgres_cluster import Databases
from tests.server.conftest import CANARY, Check
from tests.server.roles import as_role, role_in

NOWHERE = "postgres://u@127.0.0.1:1/d"


def test_database_that_is_away_fails(check: Check) -> None:
    code, output = check(DB_HOST=f"postgres://pulse:{CANARY}@127.0.0.1:1/jobs")
    assert code == 1
    assert "FAIL database The database does not answer" in output
    assert CANARY not in output


def test_schema_that_is_behind_fails_unless_it_would_be_migrated(
    check: Check, empty_database_dsn: str, databases: Databases
) -> None:
    code, output = check(DB_HOST=empty_database_dsn)
    assert code == 1
    assert "FAIL schema The database's schema is behind" in output
    assert "pulsed migrate" in output
    code, output = check("--migrate", DB_HOST=empty_database_dsn)
    assert code == 0
    assert "info schema --migrate would apply 0001_schema" in output

    async def nothing_was_made(dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT to_regnamespace('pulse')") is None
        await connection.close()

    databases.run(nothing_was_made(empty_database_dsn))


def test_schema_that_is_newer_fails_even_with_migrate(
    check: Check, database_dsn: str, databases: Databases
) -> None:
    databases.run(
        execute(database_dsn, "INSERT INTO pulse.schema_migrations VALUES (9999, '9999_future', 'x')")
    )
    code, output = check("--migrate", DB_HOST=database_dsn)
    assert code == 1
    assert "FAIL schema The database's schema is newer than this server: it has 9999_future" in output


def test_missing_privileges_fail_by_name(check: Check, database_dsn: str, databases: Databases) -> None:
    role = f"clerk_{os.getpid()}"
    as_clerk = as_role(database_dsn, role, "a-clerk")
    databases.run(execute(database_dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'a-clerk'"))
    try:
        code, output = check(DB_HOST=as_clerk)
        assert code == 1
        assert f"FAIL privileges {role} lacks SELECT, INSERT, UPDATE, DELETE on pulse.jobs." in output
        databases.run(
            execute(
                database_dsn,
                f"GRANT USAGE ON SCHEMA pulse TO {role}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
                f"REVOKE DELETE ON pulse.jobs FROM {role}",
            )
        )
        _, output = check(DB_HOST=as_clerk)
        assert f"FAIL privileges {role} lacks DELETE on pulse.jobs." in output
        assert output.count("FAIL") == 1
        assert "ok schema Up to date." in output
    finally:
        databases.run(execute(database_dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}"))


async def test_roles_that_may_connect_see_statements_or_read_the_secret_are_listed(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_checks, "_ROLES_NAMED", 1000)  # other tests have roles too
    settings = Settings(grpc_address="127.0.0.1:0", database_url=database_dsn)
    serving = (
        "GRANT USAGE ON SCHEMA pulse TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
    )
    reading = "GRANT SELECT ON ALL TABLES IN SCHEMA pulse TO {role}"
    async with (
        role_in(database_dsn) as (plain, _),
        role_in(database_dsn, "GRANT pg_monitor TO {role}") as (monitor, _),
        role_in(database_dsn, serving[0], reading) as (report, _),
        role_in(database_dsn, *serving, "GRANT pg_monitor TO {role}") as (pulsed, _),
    ):
        found = await database_checks.check_database(settings, database_dsn, migrates=False)
    readers, seeing, others = (finding for finding in found if finding.subject == "roles")

    assert f"pulse.cluster_secret FROM {report}; Then replace the secret." in readers.sentence
    assert re.search(rf"channel between servers: (.*, )?{monitor}(,.*)?\. With", seeing.sentence)
    for role in (plain, monitor, report):
        assert role in others.sentence
    assert others.sentence.endswith("CONNECT is granted to PUBLIC, which has every role.")
    assert pulsed not in readers.sentence + seeing.sentence + others.sentence


def test_connections_are_compared_with_what_is_free(check: Check, database_dsn: str) -> None:
    code, output = check(DB_HOST=database_dsn)
    assert "ok connections Up to" in output
    code, output = check("--processes", "64", DB_HOST=database_dsn)
    assert code == 0
    assert "warn connections Up to" in output
    assert "(64 processes)" in output


def test_counted_connections_are_those_of_the_pools() -> None:
    pools = Database("postgres://u@h/d").pools.values()
    settings = Settings(grpc_address="127.0.0.1:0", database_url="postgres://u@h/d")
    assert settings.most_connections == sum(pool.use.allowed for pool in pools) + 1  # and the wake-up line


def test_database_that_may_forget_is_warned_of(check: Check, database_dsn: str) -> None:
    _, output = check(DB_HOST=database_dsn)
    assert "warn database fsync is off" in output  # as it is for the tests


async def test_old_transaction_is_warned_of(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_checks, "_OLD_TRANSACTION", timedelta(0))
    connection = await asyncpg.connect(database_dsn)
    settings = Settings(grpc_address="127.0.0.1:0", database_url=database_dsn)
    async with connection.transaction():
        found = await database_checks.check_database(settings, database_dsn, migrates=False)
    await connection.close()
    assert any("A transaction has been open for" in finding.sentence for finding in found)


def test_embedded_database_is_described_and_not_made(check: Check, tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    code, output = check(PULSE_DATA_DIR=str(directory))
    assert code == 0
    assert "ok database Embedded PostgreSQL" in output
    assert f"{directory} would be made" in output
    assert not directory.parent.exists()
    assert f"{tmp_path} would get an empty database" in check(PULSE_DATA_DIR=str(tmp_path))[1]


def test_embedded_database_in_use_fails(check: Check, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, output = check(PULSE_DATA_DIR=str(tmp_path))
    assert code == 1
    assert "in use by another pulsed with pid 4711" in output


def test_embedded_database_without_programs_or_place_fails(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    code, output = check(PULSE_DATA_DIR=str(tmp_path / "file" / "data"))
    assert code == 1
    assert "is not a directory" in output
    monkeypatch.setattr(embedded_directory, "candidate_directories", lambda: iter(()))
    code, output = check(PULSE_DATA_DIR=str(tmp_path / "data"))
    assert code == 1
    assert "FAIL database No Postgres binaries were found" in output


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


def test_publication_that_keeps_rows_from_being_deleted_fails(
    check: Check, database_dsn: str, databases: Databases
) -> None:
    databases.run(execute(database_dsn, "CREATE PUBLICATION everything FOR ALL TABLES"))
    code, _ = check(DB_HOST=database_dsn)
    assert code == 0

    databases.run(execute(database_dsn, "ALTER TABLE pulse.completed_jobs_default REPLICA IDENTITY NOTHING"))
    code, output = check(DB_HOST=database_dsn)
    assert code == 1
    assert "FAIL schema The publication everything keeps rows of pulse.completed_jobs_default" in output
    assert "ALTER TABLE pulse.completed_jobs_default REPLICA IDENTITY FULL;" in output
