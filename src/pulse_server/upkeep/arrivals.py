"""Publishes the jobs that applications stored or completed in their own transactions. ADR-0075"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import timedelta

from pulse_server.base import tuning
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.database.audit import CountedCalls
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.arrivals import replacements_of
from pulse_server.jobs.reports import Arrival
from pulse_server.jobs.rules import Claim, Level

# A job is found this long after the commit of its transaction, at the latest; and at once if the
# application wakes a server.
ARRIVALS_INTERVAL = timedelta(milliseconds=250)
ARRIVALS_BATCH = 1000
# Clients may ask for a look after each of their commits. Looks are at least this far apart.
SHORTEST_PAUSE = timedelta(milliseconds=20)
# While a transaction is held open, vacuum cannot remove rows that were taken, and each look walks
# them. The loop rests this many times as long as a look takes.
REST = 4

_SQL = statements("arrivals.sql")

log = logging.getLogger(__name__)


class ArrivalQueries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_arrivals(self, most: int) -> list[Arrival]:
        """Take some of them. Another server does not get these."""
        rows = await self._database.hot.fetch("take_arrivals", _SQL["take_arrivals"], most)
        return [_arrival(*row) for row in rows]

    async def record_defaults(self, max_attempts: int, max_result_bytes: int, max_workflow_jobs: int) -> None:
        """Let the functions of the interface follow the settings of this server."""
        await self._database.hot.fetch(
            "record_defaults", _SQL["record_defaults"], max_attempts, max_result_bytes, max_workflow_jobs
        )


class Arrivals:
    """Takes arrivals and publishes them.

    A server that dies in between costs as much as a lost wake-up: a full look finds the jobs. The
    statistics miss them.
    """

    def __init__(
        self,
        queries: ArrivalQueries,
        publisher: Publisher,
        *,
        max_attempts: int,
        max_result_bytes: int,
        max_workflow_jobs: int = tuning.MAX_WORKFLOW_JOBS,
        counted: CountedCalls | None = None,
    ) -> None:
        """The numbers are the settings of this server, which the functions of the interface follow.

        Without `counted`, jobs that were replaced are only logged.
        """
        self._queries = queries
        self._publisher = publisher
        self._defaults: tuple[int, int, int] | None = (max_attempts, max_result_bytes, max_workflow_jobs)
        self._counted = counted
        self._looked_at = -math.inf
        self.loop = Loop("arrivals", self.tick, ARRIVALS_INTERVAL)

    async def tick(self) -> timedelta:
        await asyncio.sleep(self._looked_at + SHORTEST_PAUSE.total_seconds() - lease_clock())
        taken: Sequence[Arrival] | None = None
        while taken is None or len(taken) == ARRIVALS_BATCH:
            sent_at = lease_clock()
            taken = await self._queries.take_arrivals(ARRIVALS_BATCH)
            self._looked_at = lease_clock()
            self._publisher.arrived(taken, self._looked_at - sent_at)
            self._record_replaced(taken)
        # After the look: another session may have locked the row of the settings.
        if self._defaults is not None:
            await self._queries.record_defaults(*self._defaults)
            self._defaults = None
        return max(ARRIVALS_INTERVAL, REST * timedelta(seconds=self._looked_at - sent_at))

    def _record_replaced(self, taken: Sequence[Arrival]) -> None:
        """Log who replaced waiting jobs, as of a submit, and count it for the audit.

        Not an entry for each, in its transaction: a debounced job may be replaced a thousand times a second.
        """
        for action in replacements_of(taken):
            who = {"user": action.user, "role": action.role, "address": action.address}
            log.info("jobs_replaced", extra={**who, "ids": list(action.ids), "count": action.count})
            if self._counted is not None:
                count, action.count = action.count, 0
                self._counted.record(action, "OK", count=count)


def _arrival(
    topic: str,
    jobs: int,
    ids: list[object] | None,
    priority: int | None,
    age_seconds: float,
    worker_id: str | None,
    attempt: int,
    run: int,
    ran_seconds: float,
    replaced_by: str | None,
) -> Arrival:
    job_ids = [str(job_id) for job_id in ids or ()]
    if worker_id is not None:
        return Arrival(topic, 0, (), None, Claim(job_ids[0], worker_id, attempt, run), ran_seconds)
    level = None if priority is None else Level(topic, priority, age_seconds)
    return Arrival(topic, jobs, job_ids, level, replaced_by=replaced_by)
