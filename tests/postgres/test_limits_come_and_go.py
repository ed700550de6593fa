"""Limits come, change and go beside claims of both kinds, reports and open transactions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random

import asyncpg

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo
from tests.eventually import eventually
from tests.fakes.store import LEASE, failure, room, token
from tests.postgres.interface import complete, enqueue
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection

POLICIES = (
    None,
    None,
    {"running": 3},
    {"running": 3, "pool": "gpu"},
    {"per_lane": 2},
    {"turns": True, "running": 5},
    {"ordered": True, "running": 4},
    {"per_lane": 1, "running": 4, "pool": "gpu", "aging": timedelta(seconds=1)},
)
ROUNDS = 60


class Life:
    """What servers, workers, applications and an operator do at once, each step drawn from a seed."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn = dsn
        self.databases = [Database(dsn) for _ in range(2)]
        self.jobs = [PostgresJobRepo(database) for database in self.databases]
        self.limits = [PostgresLimitRepo(database) for database in self.databases]
        self.chance = Random(seed)
        self.held: list[Claim] = []
        self.disagreements: list[object] = []
        self.changes = self.waits = 0

    async def claim(self) -> None:
        slots = room("A", self.chance.choice([1, 4, 20]))
        with suppress(Unavailable):
            if self.chance.random() < 0.5:
                self.held += map(
                    token, await self.chance.choice(self.jobs).claim_batch([TOPIC], slots, LEASE)
                )
            else:
                claims = await self.chance.choice(self.limits).claim_limited([TOPIC, "other"], slots, LEASE)
                self.held += map(token, claims.jobs)

    async def submit(self) -> None:
        jobs = [in_lane(self.chance.choice(["a", "b", "c", None])) for _ in range(self.chance.choice([1, 6]))]
        if self.chance.random() < 0.5:
            await self.chance.choice(self.jobs).insert_jobs(jobs)
        else:
            limits = self.chance.choice(self.limits)
            handover = await limits.hand_over_limited(TOPIC, jobs, room("A", 2), LEASE)
            self.held += map(token, handover.claims.jobs)

    async def report(self) -> None:
        """What a change of limits has locked is reported later."""
        repo = self.chance.choice(self.jobs)
        claims = self.taken(self.chance.choice([1, 5, 20]))
        if claims and self.chance.random() < 0.3:
            ended = await repo.fail_jobs([failure(claim, retry_after=timedelta(0)) for claim in claims])
            self.held += set(claims) - ended.keys()
        elif claims:
            self.held += set(claims) - set(await repo.complete_jobs(claims))
        await repo.promote_due(1000)

    async def transact(self, application: Connection) -> None:
        """Enqueue, and perhaps complete, in a transaction that stays open for a while."""
        transaction = application.transaction()
        await transaction.start()
        for _ in range(self.chance.choice([1, 3])):
            await enqueue(application, topic=TOPIC, payload=b"1", lane=self.chance.choice(["a", "d"]))
        claims = self.taken(self.chance.choice([0, 0, 1, 3]))
        for claim in claims:
            await complete(application, claim)
        await asyncio.sleep(self.chance.choice([0, 0.005, 0.05]))
        if self.chance.random() < 0.3:
            await transaction.rollback()
            self.held += claims
        else:
            await transaction.commit()

    async def change(self) -> None:
        limits, policy = self.chance.choice(self.limits), self.chance.choice(POLICIES)
        with suppress(Unavailable):
            if policy is None:
                met = await limits.retire(TOPIC) if await limits.list_limits(limit=5) else None
            else:
                met = await limits.limit_topic(TOPIC, policy)
            self.changes += met is None
            self.waits += met is not None
            await limits.remove_retired()

    async def watch(self) -> None:
        if any(repaired := await self.limits[0].sweep()):
            self.disagreements.append(repaired)

    def taken(self, count: int) -> list[Claim]:
        return [
            self.held.pop(self.chance.randrange(len(self.held))) for _ in range(min(count, len(self.held)))
        ]

    async def run(self) -> None:
        applications = [await asyncpg.connect(self.dsn) for _ in range(2)]

        async def repeat(step: object, *args: object) -> None:
            for _ in range(ROUNDS):
                await step(*args)  # type: ignore[operator]  # each is a coroutine function
                await asyncio.sleep(0)

        await asyncio.gather(
            *(repeat(step) for step in (self.claim, self.claim, self.claim, self.submit, self.report)),
            *(repeat(step) for step in (self.change, self.change, self.watch)),
            *(repeat(self.transact, application) for application in applications),
        )
        for application in applications:
            await application.close()

    async def close(self) -> None:
        for database in self.databases:
            await database.close()


async def test_counts_agree_at_each_moment_and_no_job_is_left(shared_dsn: str, limited: Limited) -> None:
    life = Life(shared_dsn, seed=46)
    try:
        await life.run()
        assert life.disagreements == []
        assert life.changes > ROUNDS

        async def is_over() -> bool:
            if await life.limits[0].list_limits(limit=5):
                await life.limits[0].retire(TOPIC)
            await life.limits[0].unmark([])
            await life.limits[0].remove_retired()
            await life.claim()
            if claims := life.taken(1000):
                life.held += set(claims) - set(await life.jobs[0].complete_jobs(claims))
            await life.jobs[0].promote_due(1000)
            left = "SELECT count(*) FROM pulse.jobs WHERE finished_at IS NULL"
            plain = not await limited.connection.fetch("SELECT FROM pulse.limit_policies")
            return plain and not await limited.connection.fetchval(left)

        await eventually(is_over, "every job has run, and the topic is plain")
    finally:
        await life.close()
    for table in ("pools", "lanes", "lane_line", "limit_notices", "barred_topics", "limit_policies"):
        assert not await limited.connection.fetch(f"SELECT * FROM pulse.{table}"), table
