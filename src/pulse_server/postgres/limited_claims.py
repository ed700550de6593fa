"""Claims under limits. Each method sends the SQL section of the same name. ADR-0064"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import asyncpg

from pulse_server.base.errors import LimitsLocked, Unavailable
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.domain.limits import LimitedClaims, LimitedHandover
from pulse_server.jobs import inserts
from pulse_server.jobs.leases import claimed_jobs, slot_arguments, with_steps
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import Slots

_SQL = statements("limits.sql")
# How long a claim past locked pools, and the end of a change, wait for a lock.
HASTY_MILLISECONDS = 30


class PostgresLimitedClaims:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        """Lease jobs of these topics, in this order, within their limits, rates and lanes."""
        statement = _SQL["claim_limited"]
        arguments = [list(topics), *_slot_arguments(slots, lease), slots.running]

        async def past_locked_pools(fetch: Fetch) -> Rows:
            return await fetch_hastily(fetch, HASTY_MILLISECONDS, statement, *arguments, [])

        with lock_named():
            rows = await self._database.hot.fetch(
                "claim_limited", statement, *arguments, None, if_locked=past_locked_pools
            )
        return await self._claimed(rows, slots)

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        """Insert the jobs, all of this limited topic, and claim with the slots, in one statement.

        The claim may return these jobs, older ones, or none. It claims nothing if another session
        has locked the pool: this method does not wait for that lock.
        """
        arguments = _slot_arguments(slots, lease)
        answers, rows = await inserts.hand_over_limited(
            self._database.hot, "hand_over_limited", jobs, topic, *arguments
        )
        return LimitedHandover(answers, await self._claimed(rows, slots, columns_before=4))

    async def _claimed(self, rows: Rows, slots: Slots, columns_before: int = 0) -> LimitedClaims:
        leased = [row for row in rows if row["id"] is not None]
        next_starts = {
            row["topic"]: row["next_start_seconds"]
            for row in rows
            if row["id"] is None and row["topic"] is not None
        }
        # The last two columns are not in a plain claim: the lane, and when the next job may start.
        jobs = claimed_jobs([row[columns_before:-2] for row in leased], slots)
        if lanes := {str(row["id"]): row["lane"] for row in leased if row["lane"]}:
            jobs = [job._replace(lane=lanes.get(job.id)) for job in jobs]
        return LimitedClaims(await with_steps(self._database.hot, jobs), next_starts)


async def fetch_hastily(fetch: Fetch, milliseconds: int, statement: str, *args: object) -> Rows:
    """Run a statement that waits for a lock no longer than this."""
    await fetch(f"SET LOCAL lock_timeout = {milliseconds}")
    return await fetch(statement, *args)


@contextmanager
def lock_named() -> Iterator[None]:
    """Raise LimitsLocked if the statement gave up the wait for a lock."""
    try:
        yield
    except Unavailable as error:
        if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
            raise LimitsLocked from error
        raise


def _slot_arguments(slots: Slots, lease: timedelta) -> list[object]:
    return slot_arguments(slots._replace(packed=()), lease)[:6]
