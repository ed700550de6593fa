"""An application's outbox in another database, and relays that are killed, frozen, doubled and cut off."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import pulse
from pulse_cli.outbox.database import outbox_sql
from tests.eventually import eventually
from tests.system.stage import Process, Pulsed, Stage, free_port
from tests.transport.jobs_table import JobsTable

ENQUEUE = "SELECT job_id::text FROM pulse_outbox.enqueue_json('out', jsonb_build_object('n', $1::int))"


class Shop:
    """The application's database, and relays from it."""

    def __init__(self, stage: Stage, dsn: str, connection: asyncpg.Connection[Any]) -> None:
        self._stage = stage
        self.dsn = dsn
        self.connection = connection

    def relay(self, address: str, **variables: str) -> Process:
        """Start a relay, and return at once."""
        return self._stage.start_program(
            *("relay", "-m", "pulse_cli", "outbox", "relay"),
            PULSE_OUTBOX_DSN=self.dsn,
            PULSE_ADDR=address,
            HOME=str(self._stage.directory),
            **variables,
        )

    async def enqueue(self, call: str) -> str:
        """Store a job with a call such as `'topic', 'payload'`. Returns its id."""
        return str(await self.connection.fetchval(f"SELECT job_id FROM pulse_outbox.enqueue({call})"))

    async def waiting(self) -> int:
        return int(
            await self.connection.fetchval("SELECT count(*) FROM pulse_outbox.jobs WHERE refused_at IS NULL")
        )

    async def emptied(self) -> None:
        async def is_empty() -> bool:
            return not await self.waiting()

        await eventually(is_empty, "the relays have carried all jobs")


@pytest.fixture
async def shop(stage: Stage, empty_database_dsn: str) -> AsyncIterator[Shop]:
    connection = await asyncpg.connect(empty_database_dsn)
    await connection.execute(outbox_sql())
    yield Shop(stage, empty_database_dsn, connection)
    for process in stage.processes:
        process.kill()  # a relay keeps the database from being dropped
    await connection.close()


@pytest.fixture
async def server(stage: Stage) -> Pulsed:
    return await stage.pulsed()


async def ids(table: JobsTable) -> set[str]:
    return {str(row["id"]) for row in await table.connection.fetch("SELECT id FROM pulse.all_jobs")}


# ---------------------------------------------------------------- nothing lost, nothing twice


async def test_relays_killed_between_submit_and_delete_lose_and_double_nothing(
    shop: Shop, server: Pulsed, table: JobsTable
) -> None:
    """Each relay dies after its first answer, and the next one repeats jobs that have run meanwhile."""
    runs: Counter[int] = Counter()
    p = pulse.Pulse(server.address)

    @p.job("out")
    async def out(args: dict[str, int]) -> None:
        runs[args["n"]] += 1

    async with p:
        working = asyncio.create_task(p.run())
        for n in range(200):
            await shop.connection.execute(ENQUEUE, n)
        for death in range(4):
            relay = shop.relay(server.address, PULSE_FAILPOINTS="client.submitted=kill@1")
            assert await relay.ended() == -signal.SIGKILL
            await eventually(lambda: len(runs) >= 200, "the jobs have run")
            for n in range(200 + death * 100, 300 + death * 100):
                await shop.connection.execute(ENQUEUE, n)
        assert await shop.waiting() == 600
        shop.relay(server.address)
        await shop.emptied()
        await eventually(lambda: len(runs) == 600, "every job has run")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert set(runs.values()) == {1}
    assert len(await ids(table)) == 600


async def test_two_relays_share_the_jobs(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    made = {await shop.connection.fetchval(ENQUEUE, n) for n in range(2000)}
    for _ in range(2):
        shop.relay(server.address)
    await shop.emptied()
    assert await ids(table) == made


async def test_rows_of_a_frozen_relay_are_carried_by_another(
    shop: Shop, server: Pulsed, table: JobsTable
) -> None:
    frozen = shop.relay(server.address, PULSE_FAILPOINTS="client.submitted=stop@1")
    job = await shop.enqueue("'out', 'x'")
    await eventually(lambda: "failpoint_hit" in frozen.log, "the relay is frozen with its rows locked")
    shop.relay(server.address)
    await shop.emptied()
    frozen.signal(signal.SIGCONT)
    later = await shop.enqueue("'out', 'y'")
    await shop.emptied()
    assert await ids(table) == {job, later}
    assert frozen.is_running


async def test_late_commit_is_carried(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    """It has a lower number than jobs that were carried long before."""
    late = await asyncpg.connect(shop.dsn)
    transaction = late.transaction()
    await transaction.start()
    held = await late.fetchval("SELECT job_id::text FROM pulse_outbox.enqueue('out', 'late')")
    shop.relay(server.address)
    early = await shop.enqueue("'out', 'early'")
    await shop.emptied()
    assert await ids(table) == {early}
    await transaction.commit()
    await late.close()
    await shop.emptied()
    assert await ids(table) == {early, held}


async def test_rolled_back_job_is_never_submitted(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    shop.relay(server.address)
    transaction = shop.connection.transaction()
    await transaction.start()
    await shop.enqueue("'out', 'x'")
    await transaction.rollback()
    kept = await shop.enqueue("'out', 'y'")
    await shop.emptied()
    assert await ids(table) == {kept}


# ---------------------------------------------------------------- options and refusals


async def test_all_options_arrive(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    job = await shop.enqueue(
        "'out', 'x', priority => 7, delay => '1 hour', max_attempts => 3, start_within => '2 hours', "
        "lane => 'shop-7', key => 'order-1', metadata => '{\"tenant\": \"acme\"}', default_attempts => 9"
    )
    unique = await shop.enqueue("'out', 'x', unique_key => 'index', unique_scope => 'live'")
    await shop.enqueue("'out', 'x', unique_key => 'index', unique_scope => 'live'")  # skipped
    default = await shop.enqueue("'out', 'x', default_attempts => 9")
    stored_at = await shop.connection.fetchval("SELECT stored_at FROM pulse_outbox.jobs WHERE id = $1", job)
    shop.relay(server.address)
    await shop.emptied()
    async with pulse.Pulse(server.address) as p:
        found = await p.get_job(job)
        assert (found.priority, found.max_attempts, found.lane) == (7, 3, "shop-7")
        assert (found.idempotency_key, dict(found.metadata)) == ("order-1", {"tenant": "acme"})
        assert found.next_run_at is not None
        assert abs(found.next_run_at - stored_at - timedelta(hours=1)) < timedelta(seconds=1)
        assert found.start_by == found.next_run_at + timedelta(hours=2)
        assert (await p.get_job(unique)).unique_while == "live"
        assert (await p.get_job(default)).max_attempts == 9
    assert await ids(table) == {job, unique, default}


async def test_start_within_is_counted_from_the_call(shop: Shop, server: Pulsed) -> None:
    """A job that was in the outbox for longer is canceled, not started."""
    job = await shop.enqueue("'out', 'x', start_within => '1 hour'")
    await shop.connection.execute("UPDATE pulse_outbox.jobs SET run_at = run_at - interval '61 minutes'")
    shop.relay(server.address)
    await shop.emptied()
    async with pulse.Pulse(server.address) as p:
        found = await p.get_job(job)
        assert found.start_by is not None
        assert found.start_by < found.submitted_at


async def test_refused_job_stays_with_its_reason_and_blocks_nothing(
    shop: Shop, server: Pulsed, table: JobsTable
) -> None:
    taken = await shop.enqueue("'out', 'x', key => 'k'")
    refused = {
        await shop.enqueue("'not allowed!', 'x'"),
        await shop.enqueue("'out', 'x', metadata => '{\"a\": 1}'"),
        await shop.enqueue("'out', 'x', unique_key => 'u', on_conflict => 'sometimes'"),
        await shop.enqueue("'out', 'other', key => 'k'"),
    }
    last = await shop.enqueue("'out', 'y'")
    relay = shop.relay(server.address)
    await shop.emptied()
    assert await ids(table) == {taken, last}
    left = await shop.connection.fetch("SELECT id::text, refusal, refused_at FROM pulse_outbox.jobs")
    assert {row["id"] for row in left} == refused
    assert all(row["refusal"] and row["refused_at"] for row in left)
    await eventually(
        lambda: len(re.findall("pulsed refused job", relay.log)) == 4, "the relay logs each refusal once"
    )


# ---------------------------------------------------------------- outages


async def test_relay_waits_for_pulsed(shop: Shop, stage: Stage, table: JobsTable) -> None:
    address = f"127.0.0.1:{free_port()}"
    relay = shop.relay(address)
    job = await shop.enqueue("'out', 'x'")
    await eventually(lambda: "The next try is in" in relay.log, "the relay backs off")
    assert await shop.waiting() == 1
    await stage.pulsed(address)
    await shop.emptied()
    assert await ids(table) == {job}
    assert relay.is_running


async def test_relay_reconnects_to_its_database(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    relay = shop.relay(server.address)
    first = await shop.enqueue("'out', 'x'")
    await shop.emptied()
    await shop.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    second = await shop.enqueue("'out', 'y'")
    await shop.emptied()
    assert await ids(table) == {first, second}
    assert "The database of the outbox cannot be used" in relay.log
    assert relay.is_running


async def test_relay_waits_for_the_install(shop: Shop, server: Pulsed, table: JobsTable) -> None:
    await shop.connection.execute("DROP SCHEMA pulse_outbox CASCADE")
    relay = shop.relay(server.address)
    await eventually(lambda: "pulse outbox install" in relay.log, "the relay names the command")
    await shop.connection.execute(outbox_sql())
    job = await shop.enqueue("'out', 'x'")
    await shop.emptied()
    assert await ids(table) == {job}


async def test_sigterm_ends_a_relay_between_batches(shop: Shop, server: Pulsed) -> None:
    relay = shop.relay(server.address)
    await shop.enqueue("'out', 'x'")
    await shop.emptied()
    relay.signal(signal.SIGTERM)
    assert await relay.ended() == 0
    assert "Traceback" not in relay.log


# ---------------------------------------------------------------- retention


async def test_relay_warns_of_topics_that_are_kept_for_less_than_an_hour(shop: Shop, server: Pulsed) -> None:
    async with pulse.Pulse(server.address) as p:
        await p.set_topic("short", keep_completed=timedelta(minutes=5))
        await p.set_topic("long", keep_completed="forever")
    relay = shop.relay(server.address)
    for topic in ("short", "long", "usual", "short"):
        await shop.enqueue(f"'{topic}', 'x'")
        await shop.emptied()
    await eventually(lambda: "on short are kept for 5m only" in relay.log, "the relay warns")
    assert len(re.findall("are kept for", relay.log)) == 1


async def test_password_of_the_database_is_not_logged(shop: Shop, server: Pulsed) -> None:
    shop.dsn = "postgresql://shop:hunter2@127.0.0.1:1/shop"
    broken = shop.relay(server.address)
    await eventually(lambda: "The next try is in" in broken.log, "the relay backs off")
    assert "hunter2" not in broken.log
