"""Many claimers at once, each on a connection of its own: disjoint, nothing twice, nothing left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from pulse_server.database.connections import Database
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import LEASE, Store, a_job, failure, room, token

CLAIMERS = 20
JOBS = 1000


@pytest.fixture
async def claimers(shared_dsn: str, store: Store) -> AsyncIterator[list[PostgresJobRepo]]:
    databases = [Database(shared_dsn) for _ in range(CLAIMERS)]
    repos = [PostgresJobRepo(database) for database in databases]
    await asyncio.gather(*[repo.database_now() for repo in repos])  # every one of them is connected
    yield repos
    for database in databases:
        await database.close()


@pytest.mark.parametrize("topics", [["t0"], ["t0", "t1", "t2", "t3", "t4"]], ids=["one topic", "five topics"])
async def test_concurrent_claimers_share_the_queue_without_overlap(
    store: Store, claimers: list[PostgresJobRepo], topics: list[str]
) -> None:
    jobs = [a_job(topics[number % len(topics)], priority=number % 3) for number in range(JOBS)]
    await store.submit(*jobs)
    claimed: list[Claim] = []

    async def claim_until_all_are_taken(repo: PostgresJobRepo, worker_id: str) -> None:
        while len(claimed) < JOBS:
            batch = await repo.claim_batch(topics, room(worker_id, 7), LEASE)
            claimed.extend(token(job) for job in batch)

    async with asyncio.timeout(60):
        await asyncio.gather(
            *[claim_until_all_are_taken(repo, f"w{number}") for number, repo in enumerate(claimers)]
        )

    assert Counter(claim.job_id for claim in claimed) == Counter(job.id for job in jobs)
    assert await store.repo.current_claims(claimed) == set(claimed)
    assert {claim.attempt for claim in claimed} == {1}


async def test_jobs_end_once_while_reports_cancels_and_reaps_race(
    store: Store, claimers: list[PostgresJobRepo]
) -> None:
    """Four parties want to end each of the same jobs: exactly one of them succeeds."""
    await store.submit(*[a_job(max_attempts=1) for _ in range(200)])
    claims = await store.claim(count=200)
    ids = [claim.job_id for claim in claims]
    await store.time.lapse_leases(*ids)
    wins: Counter[str] = Counter()

    async def complete(repo: PostgresJobRepo) -> None:
        for start in range(0, 200, 20):
            wins.update(claim.job_id for claim in await repo.complete_jobs(claims[start : start + 20]))

    async def fail(repo: PostgresJobRepo) -> None:
        for start in range(180, -1, -20):
            batch = [failure(claim) for claim in claims[start : start + 20]]
            wins.update(claim.job_id for claim in await repo.fail_jobs(batch))

    async def cancel(repo: PostgresJobRepo) -> None:
        for job_id in ids[50:150]:
            wins.update(cancellation.job.id for cancellation in await repo.cancel_jobs([job_id], ""))

    async def reap(repo: PostgresJobRepo) -> None:
        for _ in range(20):
            wins.update(entry.claim.job_id for entry in await repo.reap_expired(5))

    verbs = [complete, fail, cancel, reap]
    async with asyncio.timeout(60):
        await asyncio.gather(*[verbs[number % 4](repo) for number, repo in enumerate(claimers)])

    assert wins == Counter(ids)
