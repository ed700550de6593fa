"""Dead letters, grouped by error. Counts are cached: concurrent callers share one query. ADR-0028"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server.base import bounds
from pulse_server.base.ids import fitting
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import Samples
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.jobs.reads import job_from_row
from pulse_server.jobs.rules import Job
from pulse_server.work.jobs import job_weight

# Cached counts, each of one topic or of all topics. One takes PAGE_BYTES at the most.
DEAD_LETTER_COUNTS_REMEMBERED = 8

_SQL = statements("dead_letters.sql")


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one topic with the same error."""

    count: int
    first_at: datetime
    last_at: datetime
    sample: Job
    """The latest one, without payload and history. It has the topic and the group."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """The groups with the latest dead letters first, and how many are left out."""

    groups: tuple[DeadLetterGroup, ...]
    left_out: int
    counted_at: datetime


class DeadLetters:
    def __init__(self, database: Database, *, clock: Callable[[], float] = lease_clock) -> None:
        self._database = database
        self._samples = Samples(self._count, DEAD_LETTER_COUNTS_REMEMBERED, clock)

    async def groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """Return the groups of the topic, or of all topics, by their newest job; as many as fit."""
        return _first(await self._samples.get(topic), limit)

    async def _count(self, topic: str | None) -> DeadLetterGroups:
        counted = await self.list_dead_letter_groups(topic, bounds.MAX_PAGE_SIZE)
        # Keep only groups that fit into an answer.
        return _first(counted, fitting(job_weight(group.sample) for group in counted.groups))

    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """Count anew, on the connection of the overview: it must not delay a claim or a list."""
        rows = await self._database.watch.fetch(
            "list_dead_letter_groups", _SQL["list_dead_letter_groups"], topic, limit
        )
        groups = tuple(
            DeadLetterGroup(row["jobs"], row["first_at"], row["last_at"], job_from_row(row)) for row in rows
        )
        total = rows[0]["total"] if rows else 0
        return DeadLetterGroups(groups, total - len(groups), datetime.now(UTC))


def _first(counted: DeadLetterGroups, count: int) -> DeadLetterGroups:
    left_out = counted.left_out + max(len(counted.groups) - count, 0)
    return DeadLetterGroups(counted.groups[:count], left_out, counted.counted_at)
