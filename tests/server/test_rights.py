"""A schema made by a DBA, and a role that may only what it must: what works, and which GRANT is named."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.rights import RightsMissing
from pulse_server.database.schema import Migration, apply_migrations, known_migrations
from tests.server.pulsed_process import caller_of, pulsed, run_pulsed
from tests.server.roles import execute, role_in

SERVE = (
    "GRANT USAGE ON SCHEMA pulse TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO {role}",
)
LATER = Migration(9001, "9001_later", "ALTER TABLE pulse.jobs ADD COLUMN later int;")
CLOSED = "REVOKE CREATE ON DATABASE {database} FROM PUBLIC"


async def test_migrated_database_is_served_and_migrated_by_a_role_that_may_create_nothing(
    database_dsn: str,
) -> None:
    async with role_in(database_dsn, CLOSED, *SERVE) as (_, dsn):
        code, output, errors = await run_pulsed("migrate", DB_HOST=dsn)
        assert (code, output) == (0, "the schema is up to date\n"), errors
        async with pulsed(dsn, "--migrate") as server, caller_of(server) as stub:
            assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id


async def test_partition_that_another_role_has_made_needs_no_grant(database_dsn: str) -> None:
    """It is used through its table."""
    async with role_in(database_dsn, *SERVE) as (_, dsn):
        await execute(
            database_dsn,
            "CREATE TABLE pulse.completed_jobs_20990101 PARTITION OF pulse.completed_jobs_by_day "
            "FOR VALUES FROM ('2099-01-01Z') TO ('2099-01-02Z')",
        )
        async with pulsed(dsn) as server, caller_of(server) as stub:
            assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id


async def test_rights_to_serve_are_named_and_help(database_dsn: str) -> None:
    async with role_in(database_dsn, CLOSED) as (role, dsn):
        starts, looks = await asyncio.gather(
            run_pulsed(DB_HOST=dsn), run_pulsed("check", DB_HOST=dsn, PULSE_GRPC_ADDR="127.0.0.1:0")
        )
        assert (starts[0], looks[0]) == (1, 1)
        grant = f"GRANT USAGE ON SCHEMA pulse TO {role};"
        assert grant in starts[2]
        assert grant in " ".join(looks[1].split())
        await execute(
            database_dsn,
            grant,
            f"GRANT SELECT ON ALL TABLES IN SCHEMA pulse TO {role}",
            "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse FROM PUBLIC",
        )
        starts, looks = await asyncio.gather(
            run_pulsed(DB_HOST=dsn), run_pulsed("check", DB_HOST=dsn, PULSE_GRPC_ADDR="127.0.0.1:0")
        )
        grants = [
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role};",
            f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO {role};",
        ]
        for grant in grants:
            assert grant in starts[2]
            assert grant in " ".join(looks[1].split())
        await execute(database_dsn, *grants)
        async with pulsed(dsn) as server, caller_of(server) as stub:
            assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id


async def test_right_to_make_the_schema_is_named_and_helps(empty_database_dsn: str) -> None:
    async with role_in(empty_database_dsn, CLOSED) as (role, dsn):
        calls = [("migrate",), ("--migrate",), ("check", "--migrate")]
        answers = await asyncio.gather(
            *(run_pulsed(*call, DB_HOST=dsn, PULSE_GRPC_ADDR="127.0.0.1:0") for call in calls)
        )
        grant = f"GRANT CREATE ON DATABASE {urlsplit(dsn).path[1:]} TO {role};"
        for code, output, errors in answers:
            assert code == 1
            assert grant in " ".join(f"{output}{errors}".split())
        await execute(empty_database_dsn, grant)

        assert await apply_migrations(dsn) == [
            *(migration.name for migration in known_migrations()),
            "functions",
        ]


async def test_schema_that_a_dba_made_is_filled_without_rights_on_the_database(
    empty_database_dsn: str,
) -> None:
    async with role_in(empty_database_dsn, CLOSED, "CREATE SCHEMA pulse") as (role, dsn):
        with pytest.raises(RightsMissing) as caught:
            await apply_migrations(dsn)
        assert caught.value.grants == [f"GRANT USAGE, CREATE ON SCHEMA pulse TO {role};"]
        await execute(empty_database_dsn, *caught.value.grants)

        async with pulsed(dsn, "--migrate") as server, caller_of(server) as stub:
            assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id


async def test_owner_of_the_tables_is_named_to_who_would_change_them(database_dsn: str) -> None:
    later = [
        *known_migrations(),
        LATER,
    ]
    async with (
        role_in(database_dsn) as (owner, _),
        role_in(database_dsn, *SERVE, f"ALTER TABLE pulse.jobs OWNER TO {owner}") as (role, dsn),
    ):
        with pytest.raises(RightsMissing) as caught:
            await apply_migrations(dsn, later)

        assert f"GRANT {owner} TO {role};" in caught.value.grants
        assert f"GRANT USAGE, CREATE ON SCHEMA pulse TO {role};" in caught.value.grants
        await execute(database_dsn, *caught.value.grants)
        assert await apply_migrations(dsn, later) == ["9001_later"]


async def test_status_names_the_right_to_look(database_dsn: str) -> None:
    async with role_in(database_dsn) as (role, dsn):
        code, _, errors = await run_pulsed("migrate", "status", DB_HOST=dsn)

    assert code == 1
    assert f"The database role {role} may not look at the schema pulse." in errors
    assert f"GRANT USAGE ON SCHEMA pulse TO {role};" in errors
    assert f"GRANT SELECT ON pulse.schema_migrations TO {role};" in errors
