"""Dead letters, grouped by error. Counts are cached: concurrent callers share one query. ADR-0028"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server.clock import lease_clock
from pulse_server.domain import limits
from pulse_server.domain.dead_letters import DeadLetterGroup, DeadLetterGroups
from pulse_server.repos.dead_letters import DeadLetterRepo
from pulse_server.service.jobs import job_weight
from pulse_server.service.paging import fitting
from pulse_server.service.samples import Samples

# Cached counts, each of one topic or of all topics. One takes PAGE_BYTES at the most.
DEAD_LETTER_COUNTS_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class DeadLettersSample:
    """The groups that fit into an answer, and how many are left out."""

    groups: tuple[DeadLetterGroup, ...]
    left_out: int
    counted_at: datetime


class DeadLetters:
    def __init__(self, repo: DeadLetterRepo, *, clock: Callable[[], float] = lease_clock) -> None:
        self._repo = repo
        self._samples = Samples(self._count, DEAD_LETTER_COUNTS_REMEMBERED, clock)

    async def groups(self, topic: str | None, limit: int) -> DeadLettersSample:
        """Return the groups of the topic, or of all topics, by their newest job; as many as fit."""
        counted, counted_at = await self._samples.get(topic)
        groups = counted.groups[:limit]
        return DeadLettersSample(groups, counted.total - len(groups), counted_at)

    async def _count(self, topic: str | None) -> tuple[DeadLetterGroups, datetime]:
        counted = await self._repo.list_dead_letter_groups(topic, limits.MAX_PAGE_SIZE)
        # Keep only groups that fit into an answer.
        count = fitting(job_weight(group.sample) for group in counted.groups)
        return DeadLetterGroups(counted.groups[:count], counted.total), datetime.now(UTC)
