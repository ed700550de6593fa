"""Another role of the database plants functions and operators: none of them ever runs as pulse's role."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.loops import Loop
from pulse_server.checks import Severity, check_database
from pulse_server.database.schema import (
    apply_migrations,
    known_migrations,
    migration_status,
    require_current_schema,
)
from tests.postgres_cluster import Databases
from tests.transport.pulse_server_under_test import server_under_test, settings_of_test

# Some have exactly the arguments of a built-in one and count where public is searched first, others fit
# better than a built-in one does and count wherever public is searched at all.
PLANTED = (
    ("clock_timestamp", "", "timestamptz"),
    ("now", "", "timestamptz"),
    ("unnest", "uuid[]", "SETOF uuid"),
    ("unnest", "text[]", "SETOF text"),
    ("cardinality", "uuid[]", "integer"),
    ("jsonb_build_array", "jsonb", "jsonb"),
    ("jsonb_array_length", "jsonb", "integer"),
    ("date_part", "text, interval", "float8"),
    ("date_trunc", "text, timestamptz", "timestamptz"),
    ("row_number", "", "bigint"),
    ("to_regclass", "text", "regclass"),
    ("pg_notify", "text, text", "void"),
    ("pg_backend_pid", "", "integer"),
    ("pg_try_advisory_lock", "bigint", "boolean"),
    ("pg_advisory_unlock", "bigint", "boolean"),
    ("pg_is_in_recovery", "", "boolean"),
    ("pg_stat_get_dead_tuples", "oid", "bigint"),
    ("current_setting", "text", "text"),
)
OPERATORS = (
    ("^", "integer, integer", "float8"),
    ("=", "uuid, uuid", "boolean"),
    ("=", "text, text", "boolean"),
)


async def plant(dsn: str, *, is_first: bool) -> None:
    """As the role mallory, which may create things in public and nothing else."""
    admin = await asyncpg.connect(dsn, timeout=60)
    name = urlsplit(dsn).path.removeprefix("/")
    await admin.execute(
        """
        DO $$ BEGIN CREATE ROLE mallory; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
        GRANT CREATE, USAGE ON SCHEMA public TO mallory;
        CREATE SEQUENCE public.planted_ran;
        """
    )
    await admin.execute("SET ROLE mallory")
    for function, arguments, result in PLANTED:
        await admin.execute(_function(function, arguments, result))
    for number, (operator, arguments, result) in enumerate(OPERATORS):
        left, right = arguments.split(", ")
        await admin.execute(_function(f"planted_{number}", arguments, result))
        await admin.execute(
            f"CREATE OPERATOR public.{operator} "
            f"(FUNCTION = public.planted_{number}, LEFTARG = {left}, RIGHTARG = {right})"
        )
    await admin.execute("RESET ROLE")
    if is_first:
        await admin.execute(f'ALTER DATABASE "{name}" SET search_path = public, pg_catalog')
    await admin.close()


def _function(name: str, arguments: str, result: str) -> str:
    return f"""
        CREATE FUNCTION public.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_catalog.nextval('public.planted_ran');  -- which no rollback undoes
            RAISE EXCEPTION 'planted: {name}';
        END $$"""


async def planted_has_run(dsn: str) -> bool:
    connection = await asyncpg.connect(dsn, timeout=60, server_settings={"search_path": "pg_catalog"})
    try:
        return bool(await connection.fetchval("SELECT is_called FROM public.planted_ran"))
    finally:
        await connection.close()


@pytest.fixture(params=[False, True], ids=["after pg_catalog", "before pg_catalog"])
def hostile_dsn(
    request: pytest.FixtureRequest, databases: Databases, template_database: str
) -> Iterator[str]:
    """A database with the schema in place, whose public is mallory's, searched last or first."""
    with databases.temporary(template_database) as dsn:
        databases.run(plant(dsn, is_first=request.param))
        yield dsn


async def round_of(loop: Loop) -> None:
    """Have the loop act now, whatever its interval is."""
    loop.nudge()
    await loop.wait_for_ticks(1)


@pytest.mark.parametrize("behind_pooler", [False, True], ids=["sessions", "behind a pooler"])
async def test_nothing_planted_runs_while_jobs_go_all_their_ways(
    hostile_dsn: str, behind_pooler: bool
) -> None:
    async with (
        server_under_test(hostile_dsn, behind_pooler=behind_pooler) as server,
        server.worker() as worker,
    ):
        done, failed, _canceled = await server.submit_many(3)
        for job in await worker.take(3):
            assert not await worker.beat(job)
            if job.job_id == done:
                await worker.complete(job)
            elif job.job_id == failed:
                await worker.fail(job, discard=True)
            else:
                await server.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
        await server.stub.RetryJob(pb.RetryJobRequest(job_id=failed))
        await server.stub.ListTopics(pb.ListTopicsRequest())
        await server.stub.ListWorkers(pb.ListWorkersRequest())
        await server.stub.ListDeadLetterGroups(pb.ListDeadLetterGroupsRequest())
        await server.stub.GetStatistics(pb.GetStatisticsRequest())
        made = await server.stub.CreateSchedule(
            pb.CreateScheduleRequest(topic="mail", cron="* * * * *", payload=b"{}")
        )
        await server.stub.FireSchedule(pb.FireScheduleRequest(schedule_id=made.schedule_id))
        await server.stub.GetSchedulerStatus(pb.GetSchedulerStatusRequest())
        await server.stub.PauseDispatch(pb.PauseDispatchRequest())
        await asyncio.gather(*map(round_of, server.app._loops()))
    assert not await planted_has_run(hostile_dsn)


async def test_nothing_planted_runs_while_the_schema_is_made(empty_database_dsn: str) -> None:
    await plant(empty_database_dsn, is_first=True)
    assert await apply_migrations(empty_database_dsn) == [
        *(entry.name for entry in known_migrations()),
        "functions",
    ]
    assert all(entry.applied_at for entry in await migration_status(empty_database_dsn))
    await require_current_schema(empty_database_dsn)
    assert not await planted_has_run(empty_database_dsn)


async def test_check_names_who_may_plant_and_what_was_planted(hostile_dsn: str) -> None:
    findings = await check_database(settings_of_test(), hostile_dsn, migrates=False)
    assert not await planted_has_run(hostile_dsn)
    warned = " ".join(finding.sentence for finding in findings if finding.level is Severity.WARN)
    assert "REVOKE CREATE ON SCHEMA public FROM mallory;" in warned
    assert "The role mallory made functions or operators under the names of built-in ones" in warned
    assert f" and {len(PLANTED) + len(OPERATORS) - 3} more." in warned
    assert "REVOKE CREATE ON SCHEMA pulse" not in warned


async def test_check_finds_nothing_in_a_database_of_its_own(database_dsn: str) -> None:
    findings = await check_database(settings_of_test(), database_dsn, migrates=False)
    (privileges,) = [finding.sentence for finding in findings if finding.subject == "privileges"]
    assert privileges.endswith("may use every table of the schema pulse.")
