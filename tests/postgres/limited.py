"""Limited topics under test: the two ports on one database, and the steps that most tests begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulse_server.dispatch.rules import LimitedClaims
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.rules import Claim
from pulse_server.topics.store import PostgresLimitRepo
from tests.fakes.store import LEASE, Store, a_job, room, token
from tests.postgres.sessions import Connection

TOPIC = "sync"


def in_lane(lane: str | None, topic: str = TOPIC, **changes: Any) -> NewJob:
    return a_job(topic, lane=lane, **changes)


@dataclass
class Limited:
    store: Store
    limits: PostgresLimitRepo
    connection: Connection

    async def limit_topic(self, topic: str = TOPIC, **entries: Any) -> None:
        """Set limits. No other transaction is in the way."""
        assert await self.limits.limit_topic(topic, entries) is None

    async def claims(self, count: int, *topics: str) -> LimitedClaims:
        return await self.limits.claim_limited(topics or (TOPIC,), room("A", count), LEASE)

    async def claim(self, count: int, *topics: str) -> list[Claim]:
        """Lease up to so many jobs of these topics to one worker. Returns the tokens, in their order."""
        return [token(job) for job in (await self.claims(count, *topics)).jobs]

    async def claim_all(self, *topics: str) -> list[Claim]:
        """Claim until nothing more may start at once."""
        found: list[Claim] = []
        for _ in range(1000):
            claims = await self.claims(1000, *topics)
            found += map(token, claims.jobs)
            if not claims.jobs and 0 not in claims.next_starts.values():
                return found
        raise AssertionError("the claims did not come to an end")

    async def submit(self, *jobs: NewJob) -> list[str]:
        return await self.store.submit(*jobs)

    async def complete(self, *claims: Claim) -> None:
        assert set(await self.store.repo.complete_jobs(claims)) == set(claims)

    async def promote(self, *job_ids: str) -> None:
        """Let the waits of these jobs pass."""
        await self.store.time.make_due(*job_ids)
        await self.store.repo.promote_due(1000)

    async def waits_are_over(self) -> None:
        """Let the waits of all lanes pass."""
        await self.connection.execute("UPDATE pulse.lanes SET next_at = now() WHERE next_at IS NOT NULL")

    async def agrees(self) -> bool:
        """Whether the counts agree with what runs: a sweep finds nothing."""
        return await self.limits.sweep() == (0, 0)
