"""A database that answers slowly makes everything slower, and stops nothing."""

from datetime import timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.system.stage import QUICK, RECOVERY_SECONDS, STEADY, Stage, all_completed, all_finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

# The default lease: a confirmation is good for a quarter of it at the most.
LEASE = QUICK | {"PULSE_LEASE_TTL": "30s", "PULSE_HEARTBEAT_INTERVAL": "10s"}
SLOW = """
    CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
    CREATE TRIGGER slow BEFORE {events} ON pulse.jobs FOR EACH STATEMENT EXECUTE FUNCTION public.slow();
"""
SLOW_COMMIT = """
    CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER {events} ON pulse.jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.delivered) EXECUTE FUNCTION public.slow();
"""
EVERYTHING = "INSERT OR UPDATE OR DELETE"
HEARTBEATS = "UPDATE OF progress"  # and what ends an attempt; a claim does not write it
# The view has the sessions of all databases, and with them those of tests that run beside this one.
SLEEPING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'
"""


@pytest.mark.parametrize("seconds", [0.6, 1.2])
async def test_retries_and_last_attempts_start_however_slow_each_statement_is(
    stage: Stage, table: JobsTable, seconds: float
) -> None:
    """Both are confirmed with the server before they start."""
    server = await stage.pulsed(**LEASE)
    await stage.worker(server.address, "work", "fail-once", concurrency=5)
    async with pulse.Pulse(server.address, timeout=timedelta(seconds=RECOVERY_SECONDS)) as p:
        await table.connection.execute(SLOW.format(seconds=seconds, events=EVERYTHING))
        last = await p.enqueue_many("work", [Errand()] * 3, max_attempts=1)
        retried = await p.enqueue_many("fail-once", [None] * 3, max_attempts=3)
        await all_finished(table)
    await all_completed(table, [*last, *retried])


async def test_worker_killed_while_its_confirmation_is_under_way_costs_no_attempt(
    stage: Stage, table: JobsTable
) -> None:
    """The statement runs after the time in which the worker would have started its jobs."""
    # Leases that a busy machine does not let end: a confirmation is good for 2.5 s at the most.
    server = await stage.pulsed(**STEADY)
    killed = await stage.worker(server.address, "work", concurrency=20)
    async with pulse.Pulse(server.address) as p:
        await table.connection.execute(SLOW.format(seconds=3, events=HEARTBEATS))
        handles = await p.enqueue_many("work", [Errand()] * 10, max_attempts=1)

        async def confirms() -> bool:
            return bool(await table.connection.fetchval(SLEEPING))

        await eventually(confirms, "a confirmation is under way")
        killed.kill()
        await table.connection.execute("DROP TRIGGER slow ON pulse.jobs")  # waits for the statement
        await stage.worker(server.address, "work", concurrency=20)
        await all_finished(table)
    await all_completed(table, handles)


async def test_worker_killed_behind_a_slow_commit_of_its_confirmation_costs_no_attempt(
    stage: Stage, table: JobsTable
) -> None:
    """The statement ran in time, its commit did not: the worker has started nothing."""
    server = await stage.pulsed(**STEADY)
    killed = await stage.worker(server.address, "work", concurrency=20)
    async with pulse.Pulse(server.address) as p:
        await table.connection.execute(SLOW_COMMIT.format(seconds=3, events="UPDATE"))
        handles = await p.enqueue_many("work", [Errand()], max_attempts=1)

        async def commits() -> bool:
            return bool(await table.connection.fetchval(SLEEPING))

        await eventually(commits, "a confirmation is being committed")
        killed.kill()
        await table.connection.execute("DROP TRIGGER slow ON pulse.jobs")  # waits for the commit
        await stage.worker(server.address, "work", concurrency=20)
        await all_finished(table)
    await all_completed(table, handles)
