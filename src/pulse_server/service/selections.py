"""Acts on many jobs at once, batch by batch, so that whoever stops half-way leaves the rest untouched."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.jobs import JobFilter, PageKey
from pulse_server.domain.status import LIVE, REDRIVABLE, TERMINAL, JobStatus
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.jobs import Jobs
from pulse_server.service.paging import decode_token, encode_token


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step did. An empty token: nothing that matched is left.

    `locked`: so many were left as they are, because another session of the database has their rows.
    """

    changed: int
    next_token: str
    locked: int = 0


class Selections:
    """Where a filter names no status, it means whatever is not finished."""

    def __init__(self, repo: JobRepo, jobs: Jobs) -> None:
        self._repo = repo
        self._jobs = jobs

    async def count(self, wanted: JobFilter) -> tuple[int, datetime]:
        """How many match, and by which moment of the database's clock."""
        statuses = wanted.statuses or LIVE
        if JobStatus.COMPLETED in statuses:
            raise InvalidArgument(
                "status",
                "is COMPLETED, and those are not counted: there may be millions, and counting reads each. "
                "ListTopics tells how many were completed lately.",
            )
        counted_at = await self._repo.database_now()
        return await self._repo.count_matching_jobs(replace(wanted, statuses=statuses)), counted_at

    async def cancel(self, wanted: JobFilter, reason: str, *, limit: int, token: str) -> Batch:
        """Call the next jobs off that match. One that has moved on by then is passed over."""
        _require_some(wanted, "cancel")
        statuses = _allowed(wanted.statuses or LIVE, LIVE, "cancelled")
        job_ids, next_token = await self._next(replace(wanted, statuses=statuses), limit, token)
        changed = await self._jobs.cancel_all(job_ids, reason, statuses)
        return await self._batch(job_ids, [job.id for job in changed], statuses, next_token)

    async def retry(self, wanted: JobFilter, attempts: int, *, limit: int, token: str) -> Batch:
        """Put the next jobs back in line that match. One that somebody else has retried is passed over."""
        statuses = _allowed(_named(wanted, REDRIVABLE), REDRIVABLE, "retried")
        job_ids, next_token = await self._next(wanted, limit, token)
        changed = await self._jobs.retry_all(job_ids, attempts, statuses)
        return await self._batch(job_ids, [job.id for job in changed], statuses, next_token)

    async def prioritize(self, wanted: JobFilter, priority: int, *, limit: int, token: str) -> Batch:
        """Give the next jobs that match another priority. One that has finished by then is passed over."""
        _require_some(wanted, "change")
        statuses = _allowed(wanted.statuses or LIVE, LIVE, "prioritised")
        job_ids, next_token = await self._next(replace(wanted, statuses=statuses), limit, token)
        changed = await self._jobs.prioritize_all(job_ids, priority, statuses)
        return await self._batch(job_ids, [job.id for job in changed], statuses, next_token)

    async def delete(self, wanted: JobFilter, *, limit: int, token: str) -> Batch:
        """Delete the next jobs that match. One that somebody has retried is passed over."""
        statuses = _allowed(_named(wanted, TERMINAL), TERMINAL, "deleted")
        job_ids, next_token = await self._next(wanted, limit, token)
        deleted = await self._jobs.delete_all(job_ids, statuses)
        return await self._batch(job_ids, deleted, statuses, next_token)

    async def _batch(
        self,
        job_ids: Collection[str],
        changed: Collection[str],
        statuses: frozenset[JobStatus],
        next_token: str,
    ) -> Batch:
        passed_over = set(job_ids).difference(changed)
        found = await self._repo.job_statuses(passed_over) if passed_over else {}
        # One that has moved on is no longer in these statuses; one that still is was locked.
        locked = sum(status in statuses for status in found.values())
        return Batch(len(changed), next_token, locked)

    async def _next(self, wanted: JobFilter, limit: int, token: str) -> tuple[list[str], str]:
        after = decode_token(token) if token else None
        found = await self._repo.matching_jobs(wanted, limit=limit + 1, after=after)
        batch: list[PageKey] = found[:limit]
        next_token = encode_token(batch[-1]) if len(found) > limit else ""
        return [key.id for key in batch], next_token


def _require_some(wanted: JobFilter, verb: str) -> None:
    if wanted == JobFilter():
        raise InvalidArgument(
            "filter",
            f"is empty, and would {verb} every job there is. Say which: by topic, by status and so on.",
        )


def _named(wanted: JobFilter, allowed: frozenset[JobStatus]) -> frozenset[JobStatus]:
    if wanted.statuses is None:
        raise InvalidArgument("status", f"is missing: name one of {_listed(allowed)}.")
    return wanted.statuses


def _allowed(
    statuses: frozenset[JobStatus], allowed: frozenset[JobStatus], done: str
) -> frozenset[JobStatus]:
    if not statuses <= allowed:
        raise InvalidArgument(
            "status", f"is {_listed(statuses)}, but only {_listed(allowed)} jobs can be {done}."
        )
    return statuses


def _listed(statuses: frozenset[JobStatus]) -> str:
    *others, last = (status for status in JobStatus if status in statuses)
    return f"{', '.join(others)} or {last}" if others else last
