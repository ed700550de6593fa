"""Limits under load: two servers, killed sessions, changing limits; judged by an audit of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

from pulse.topic_settings import Rate
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.rules import part
from pulse_server.topics.store import PostgresLimitRepo
from tests.eventually import eventually
from tests.fakes.store import LEASE, failure, room, token
from tests.postgres.limited import Limited, in_lane
from tests.postgres.limits_audit import begin_audit, end_audit
from tests.postgres.sessions import Connection

SECOND = timedelta(seconds=1)
LIMITS = {
    "running": {"running": 10},
    "lanes": {"per_lane": 1},
    "both": {"running": 20, "per_lane": 3},
    "rate": {"rate": Rate(50, SECOND)},
    "lane rate": {"lane_rate": Rate(5, SECOND)},
    "turns": {"turns": True},
    "ordered": {"ordered": True},
    "all": {"running": 12, "rate": Rate(60, SECOND), "per_lane": 2, "lane_rate": Rate(10, SECOND)},
    "train": {"running": 7, "pool": "gpu"},
    "render": {"running": 7, "per_lane": 2, "pool": "gpu"},
}
ROUNDS = 60


class Load:
    """What several servers and workers do at once, each step drawn from a seed."""

    def __init__(self, dsn: str, connection: Connection, seed: int) -> None:
        # Claims have sessions of their own: one that is to be killed may have gone on to another statement.
        self.databases = [Database(dsn) for _ in range(4)]
        self.jobs = [PostgresJobRepo(database) for database in self.databases[:2]]
        self.claiming = [PostgresLimitRepo(database) for database in self.databases[2:]]
        self.limiting = PostgresLimitRepo(self.databases[0])
        self.connection = connection
        self.chance = Random(seed)
        self.held: list[Claim] = []
        self.is_over = False

    async def submit(self, _round: int) -> None:
        topic = self.chance.choice(list(LIMITS))
        lanes = [f"k{int(self.chance.expovariate(0.15)) % 30}" for _ in range(self.chance.choice([1, 5, 50]))]
        await self._jobs.insert_jobs(
            [in_lane(lane if self.chance.random() < 0.95 else None, topic) for lane in lanes]
        )

    async def claim(self, _round: int) -> None:
        topics = self.chance.sample(list(LIMITS), self.chance.choice([1, 2, 4]))
        with suppress(Unavailable):  # its session was killed
            claims = await self.chance.choice(self.claiming).claim_limited(
                topics, room("A", self.chance.choice([1, 5, 40])), LEASE
            )
            self.held += map(token, claims.jobs)

    async def report(self, _round: int) -> None:
        count = min(len(self.held), self.chance.choice([1, 10, 60]))
        claims = [self.held.pop(self.chance.randrange(len(self.held))) for _ in range(count)]
        jobs = self._jobs
        match self.chance.choices(("complete", "release", "fail", "cancel"), (14, 3, 2, 1))[0]:
            case "complete":
                assert set(await jobs.complete_jobs(claims)) == set(claims)
            case "release":
                assert len(await jobs.release_jobs(claims)) == count
            case "fail":
                reports = [failure(claim, retry_after=timedelta(milliseconds=50)) for claim in claims]
                assert len(await jobs.fail_jobs(reports)) == count
            case "cancel":
                await jobs.cancel_jobs([claim.job_id for claim in claims], "")
        await jobs.promote_due(1000)

    async def change(self, number: int) -> None:
        if number % 6 == 0:
            limit, per_lane = self.chance.choice([5, 20]), self.chance.choice([1, 2, 3])
            await self.limiting.limit_topic("both", {"running": limit, "per_lane": per_lane})
        elif number % 6 == 3:
            await self.connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE state = 'active' AND datname = current_database() AND query LIKE '%claim_limited%' "
                "AND pid <> pg_backend_pid()"
            )

    @property
    def _jobs(self) -> PostgresJobRepo:
        return self.chance.choice(self.jobs)

    async def run(self) -> None:
        async def repeat(step: Callable[[int], object], rounds: int = ROUNDS) -> None:
            for number in range(rounds):
                await step(number)  # type: ignore[misc]  # each is a coroutine function
                await asyncio.sleep(0)

        await asyncio.gather(
            *(repeat(self.submit) for _ in range(3)),
            *(repeat(self.claim, 2 * ROUNDS) for _ in range(3)),
            *(repeat(self.report, 2 * ROUNDS) for _ in range(2)),
            repeat(self.change),
        )

    async def close(self) -> None:
        for database in self.databases:
            await database.close()


async def test_no_limit_is_exceeded_and_no_job_is_left(shared_dsn: str, limited: Limited) -> None:
    connection = limited.connection
    for topic, entries in LIMITS.items():
        await limited.limits.limit_topic(topic, entries)
    await begin_audit(connection)
    load = Load(shared_dsn, connection, seed=21)
    try:
        await load.run()

        # Nothing is submitted any more: whatever waits has to be found by what has happened before.
        async def is_drained() -> bool:
            jobs, limits = load.jobs[0], load.limiting
            await jobs.promote_due(1000)
            load.held += map(token, (await limits.claim_limited(list(LIMITS), room("A", 500), LEASE)).jobs)
            if load.held:
                await jobs.complete_jobs(load.held)
                load.held = []
            return not await connection.fetchval("SELECT count(*) FROM pulse.jobs WHERE finished_at IS NULL")

        for topic, entries in LIMITS.items():
            if not {"rate", "lane_rate"}.isdisjoint(entries):  # a rate would take its time
                await limited.limits.limit_topic(
                    topic, {"running": 1000, **part(entries, entries.keys() - {"rate", "lane_rate"})}
                )
        runs_until_here = await end_audit(connection, pools=[("train", "render")])
        await eventually(is_drained, "every job has run")
    finally:
        await load.close()
    assert await limited.agrees()
    runs = runs_until_here
    assert runs.most_of_topic("running") == 10
    assert runs.most_of_a_lane("lanes") == 1
    assert runs.most_of_a_lane("ordered") == 1
    assert runs.most_of_topic("both") <= 20
    assert runs.most_of_a_lane("both") <= 3
    assert runs.most_of_topic("all") <= 12
    assert runs.most_of_a_lane("all") <= 2
    assert runs.most_of_topic("train", "render") <= 7
    assert runs.most_of_a_lane("render") <= 2
    assert runs.most_starts("rate", SECOND) <= 50
    assert runs.most_starts("lane rate", SECOND, of_a_lane=True) <= 5
    assert runs.most_starts("all", SECOND) <= 60
    assert runs.most_starts("all", SECOND, of_a_lane=True) <= 10
