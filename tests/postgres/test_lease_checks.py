"""Lease checks: every running job is found when its lease ends, and is looked at no more often than that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.jobs.leases import PostgresLeaseCheckRepo
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim, JobFilter, JobStatus
from tests.eventually import eventually
from tests.fakes.store import LEASE, Store, a_job, room, token
from tests.postgres.glance import servers_on
from tests.postgres.sessions import Connection

SECOND = timedelta(seconds=1)
RUNNING = JobFilter(statuses=frozenset({JobStatus.RUNNING}))
CHECKS = "SELECT settled, cardinality(ids) FROM pulse.lease_checks ORDER BY check_at"


@pytest.fixture
async def database(shared_dsn: str) -> AsyncIterator[Database]:
    database = Database(shared_dsn)
    yield database
    await database.close()


@pytest.fixture
def lease_checks(database: Database) -> PostgresLeaseCheckRepo:
    return PostgresLeaseCheckRepo(database)


async def written(connection: Connection) -> list[tuple[bool, int]]:
    return [tuple(row) for row in await connection.fetch(CHECKS)]


async def pass_time(connection: Connection, duration: timedelta) -> None:
    """Move leases and checks into the past, as if the duration had passed."""
    await connection.execute("UPDATE pulse.lease_checks SET check_at = check_at - $1::interval", duration)
    await connection.execute("UPDATE pulse.jobs SET lease_until = lease_until - $1::interval", duration)


async def start_with_lease(store: Store, lease: timedelta) -> Claim:
    await store.submit(a_job())
    (job,) = await store.repo.claim_batch(["email"], room("A", 1), lease)
    return token(job)


async def wait_for_end_of_lease(store: Store, claim: Claim) -> datetime:
    until = (await store.job(claim.job_id)).lease_until
    assert until is not None

    async def has_ended() -> bool:
        return await store.repo.database_now() > until

    await eventually(has_ended)
    return until


async def test_claim_writes_one_check_for_all_of_its_jobs(store: Store, connection: Connection) -> None:
    await store.submit(*[a_job(topic) for topic in ("email", "email", "sms")])

    await store.claim(count=9)
    await store.claim(count=9, topics=["sms", "push"])
    await store.claim(count=9)  # finds nothing

    assert await written(connection) == [(False, 2), (False, 1)]


async def test_hand_over_writes_a_check_for_what_was_taken(store: Store, connection: Connection) -> None:
    jobs = [a_job(), a_job(), a_job("sms")]
    takers = [Taker("A", True), Taker("A", True), None]

    await store.repo.hand_over_jobs(jobs, takers, LEASE)
    await store.repo.hand_over_jobs([a_job("sms")], [Taker("A", True)], LEASE)  # behind another
    await store.repo.hand_over_jobs([a_job("push")], [Taker("A", True)], LEASE)

    assert await written(connection) == [(False, 2), (False, 1)]


async def test_claims_are_settled_two_seconds_later_and_only_what_still_runs_is_kept(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo
) -> None:
    await store.submit(*[a_job() for _ in range(5)])
    done, failed, released, *running = await store.claim(count=5)
    await store.repo.complete_jobs([done])
    await store.repo.cancel_jobs([failed.job_id], "")
    await store.repo.release_jobs([released])

    assert await lease_checks.settle_claims(10) == 0
    await pass_time(connection, 2 * SECOND)
    assert await lease_checks.settle_claims(10, 15 * SECOND) == 1

    assert await written(connection) == [(True, len(running))]
    assert await lease_checks.settle_claims(10) == 0


async def test_claims_that_became_due_long_ago_are_settled_by_a_look_at_everything(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo
) -> None:
    await store.start()
    await pass_time(connection, 60 * SECOND)

    assert await lease_checks.settle_claims(10, 15 * SECOND) == 0
    assert await lease_checks.settle_claims(10) == 1


async def test_lease_is_reaped_as_soon_as_it_has_ended(store: Store) -> None:
    claim = await start_with_lease(store, SECOND / 20)
    until = await wait_for_end_of_lease(store, claim)

    assert await store.repo.reap_expired(9, until) == []
    assert [entry.claim for entry in await store.repo.reap_expired(9)] == [claim]


async def test_lease_that_was_extended_is_reaped_as_soon_as_the_last_one_has_ended(
    store: Store, lease_checks: PostgresLeaseCheckRepo
) -> None:
    claim = await start_with_lease(store, SECOND / 20)
    await wait_for_end_of_lease(store, claim)
    await lease_checks.settle_claims(10)
    assert (await store.repo.extend_leases([claim], SECOND / 5)).extended == {claim}
    assert await store.repo.reap_expired(9) == []

    await wait_for_end_of_lease(store, claim)

    assert [entry.claim for entry in await store.repo.reap_expired(9)] == [claim]


async def test_job_that_is_beaten_for_minutes_is_looked_at_once_per_lease(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo
) -> None:
    """A beat every 10 s, a lease of 30 s: at each look the lease has 20 s left or more."""
    claim = await start_with_lease(store, 30 * SECOND)
    looks, known = 0, await connection.fetchval("SELECT xmin::text || ctid::text FROM pulse.lease_checks")
    for _ in range(60):
        await pass_time(connection, 5 * SECOND)
        await store.repo.extend_leases([claim], 30 * SECOND)
        await pass_time(connection, 5 * SECOND)
        await connection.execute("VACUUM pulse.lease_checks")
        before = await connection.fetch("SELECT check_at FROM pulse.lease_checks WHERE check_at <= now()")
        await lease_checks.settle_claims(10)
        assert await store.repo.reap_expired(9) == []
        looks += len(before)

    assert known
    assert 0 < looks <= 1 + 600 // 20
    assert await store.repo.current_claims([claim]) == {claim}


async def test_truncated_table_loses_no_job(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo, database: Database
) -> None:
    await store.submit(*[a_job() for _ in range(4)])
    lost, *alive = await store.claim(count=3)
    await connection.execute("TRUNCATE pulse.lease_checks")
    await connection.execute("UPDATE pulse.jobs SET lease_until = now() WHERE id = $1", lost.job_id)
    assert await store.repo.reap_expired(9) == []

    first = await lease_checks.restore_lease_checks(after=None, limit=2)
    second = await lease_checks.restore_lease_checks(after=first.reached, limit=9)

    assert (first.looked_at, second.looked_at, first.restored + second.restored) == (2, 2, 3)
    assert (await lease_checks.restore_lease_checks(after=None, limit=9)).restored == 0
    assert await store.repo.count_matching_jobs(RUNNING) == 3
    assert [entry.claim for entry in await store.repo.reap_expired(9)] == [lost]
    (holding,) = (await servers_on(database).held_jobs(9)).values()
    assert {job.job_id for job in holding.jobs} == {claim.job_id for claim in alive}


async def test_sweep_past_the_last_job_finds_nothing(
    store: Store, lease_checks: PostgresLeaseCheckRepo
) -> None:
    job = await store.job((await store.start()).job_id)

    found = await lease_checks.restore_lease_checks(after=PageKey(job.submitted_at, job.id), limit=9)

    assert (found.looked_at, found.reached, found.restored) == (0, None, 0)


async def test_job_that_was_released_and_claimed_again_counts_once(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo, database: Database
) -> None:
    first = await store.start()
    await store.repo.release_jobs([first])
    (again,) = await store.claim("B")
    assert len(await written(connection)) == 2

    assert await store.repo.count_matching_jobs(RUNNING) == 1
    assert [job.id for job in await store.repo.list_jobs(RUNNING, limit=9)] == [again.job_id]
    assert {name: held.count for name, held in (await servers_on(database).held_jobs(9)).items()} == {"B": 1}
    await pass_time(connection, 2 * SECOND)
    assert await lease_checks.settle_claims(10) == 2
    assert await written(connection) == [(True, 1)]


async def test_expired_leases_of_many_claims_are_reaped_up_to_the_limit(
    store: Store, connection: Connection, lease_checks: PostgresLeaseCheckRepo
) -> None:
    claims = [await store.start() for _ in range(50)]
    await pass_time(connection, 2 * LEASE)
    assert await lease_checks.settle_claims(100) == 50

    reaped = [*await store.repo.reap_expired(30), *await store.repo.reap_expired(30)]

    assert {entry.claim for entry in reaped[:30]} == set(claims[:30])
    assert {entry.claim for entry in reaped} == set(claims)
    assert await written(connection) == []


async def test_locked_check_delays_only_its_own_jobs(
    store: Store, connection: Connection, rival: Connection, lease_checks: PostgresLeaseCheckRepo
) -> None:
    locked = await store.start()
    await rival.execute("SELECT FROM pulse.lease_checks FOR UPDATE")
    free = await store.start()
    await connection.execute("UPDATE pulse.jobs SET lease_until = now() - interval '1 s'")
    later = "UPDATE pulse.lease_checks SET check_at = now() - interval '1 s' WHERE $1 = ANY (ids)"
    await connection.execute(later, free.job_id)

    assert [entry.claim for entry in await store.repo.reap_expired(9)] == [free]
    await rival.execute("COMMIT")
    await connection.execute(later, locked.job_id)
    assert [entry.claim for entry in await store.repo.reap_expired(9)] == [locked]
