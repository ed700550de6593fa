"""Jobs: get, list and find them; cancel, retry, prioritize and delete them, also all that match a filter.

A selection is worked through batch by batch. A caller that stops between two batches leaves the rest
unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from pulse_server.base.errors import InvalidArgument, InvalidTransition, JobLocked, JobNotFound
from pulse_server.base.ids import Page, PageKey, decode_token, encode_token, page_of, parse_id, text_weight
from pulse_server.database.audit import undo_id
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.new_jobs import Scope
from pulse_server.jobs.rules import LIVE, REDRIVABLE, TERMINAL, Job, JobFilter, JobStatus
from pulse_server.jobs.store import PostgresJobRepo

# Jobs that a prefix of an id may stand for before it is called ambiguous anyway.
JOBS_FOUND = 10
# Jobs that one call reads at the most if no index serves it, and that are counted: a tenth of a second.
SEARCHED_JOBS = 100_000
# A list of a topic reads on until it has found a job, up to here: 0.2 s.
SEARCHED_FOR_ONE = 400_000
# Jobs that such a list reads first. They often fill its page. Finding the last of SEARCHED_JOBS takes 20 ms.
GLANCED_JOBS = 5_000


class Jobs:
    def __init__(self, repo: PostgresJobRepo, publisher: Publisher) -> None:
        self._repo = repo
        self._publisher = publisher

    async def get(self, job_id: str) -> Job:
        job = await self._repo.get_job(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def list(self, wanted: JobFilter, *, limit: int, offset: int, token: str) -> Page[Job]:
        """Return one page, newest first. A token continues where its page ended; new jobs do not shift it.

        A list that no index serves reads SEARCHED_JOBS at the most; one of a topic reads SEARCHED_FOR_ONE
        rather than return an empty page. With an offset both read all: pages by offset have no token to
        continue with.
        """
        if offset or not (wanted.searches or wanted.passes_other_topics):
            return await self._page(wanted, limit, offset, token, None)
        bounds = [GLANCED_JOBS, SEARCHED_JOBS] + ([] if wanted.searches else [SEARCHED_FOR_ONE])
        for most in bounds:
            until = await self.search_end(wanted, token, most)
            page = await self._page(wanted, limit, 0, token, until)
            if until is None or page.next_token:
                return page
            cut = Page(page.entries, encode_token(until), until.moment)
            if cut.entries and most >= SEARCHED_JOBS:
                break
        return cut

    async def _page(
        self, wanted: JobFilter, limit: int, offset: int, token: str, until: PageKey | None
    ) -> Page[Job]:
        return await page_of(
            lambda count, after: self._repo.list_jobs(
                wanted, limit=count, offset=offset, after=after, until=until
            ),
            limit,
            token,
            key=page_key,
            weight=job_weight,
        )

    async def search_end(self, wanted: JobFilter, token: str, most: int) -> PageKey | None:
        """Return the last of the `most` jobs that a call from the token on may read; None: all."""
        after = decode_token(token) if token else None
        found = await self._repo.matching_jobs(wanted.as_read(), limit=1, offset=most - 1, after=after)
        return found[0] if found else None

    async def find(self, prefix: str) -> Sequence[str]:
        """Return the first ids that begin with these hexadecimal digits."""
        return await self._repo.find_jobs(prefix, JOBS_FOUND)

    async def cancel_all(
        self, job_ids: Collection[str], reason: str, statuses: Collection[JobStatus] = LIVE
    ) -> Sequence[Job]:
        """Cancel the jobs that are in one of the statuses. Returns them.

        Here and below, a job whose row another session of the database has locked stays as it is.
        """
        if not job_ids:
            return []
        canceled = await self._repo.cancel_jobs(job_ids, reason, statuses, action=undo_id())
        self._publisher.canceled(canceled, reason)
        return [entry.job for entry in canceled]

    async def retry_all(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
        at_once: bool = False,
    ) -> Sequence[Job]:
        """Retry the jobs that are in one of the statuses. Returns them. `fresh` ones lose their steps.

        A canceled job that never started keeps a later start time, unless `at_once`.
        """
        if not job_ids:
            return []
        jobs = await self._repo.retry_jobs(
            job_ids, attempts, statuses, fresh=fresh, at_once=at_once, action=undo_id()
        )
        self._publisher.retried(jobs)
        return jobs

    async def prioritize_all(
        self, job_ids: Collection[str], priority: int, statuses: Collection[JobStatus] = LIVE
    ) -> Sequence[Job]:
        """Change the priority of the jobs that are in one of the statuses. Returns them."""
        if not job_ids:
            return []
        jobs = await self._repo.prioritize_jobs(job_ids, priority, statuses, action=undo_id())
        self._publisher.prioritized(jobs)
        return jobs

    async def undo_all(self, job_ids: Collection[str], action: str) -> Sequence[Job]:
        """Revert the action on the jobs that are as it left them. Returns them."""
        restored = await self._repo.undo_jobs(job_ids, action) if job_ids else []
        self._publisher.undone(
            [entry.job for entry in restored if entry.job.status is not entry.before],
            {entry.job.topic for entry in restored},
        )
        return [entry.job for entry in restored]

    async def delete_all(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> Collection[str]:
        """Delete the jobs that are in one of the statuses. Returns their ids."""
        deleted = await self._repo.delete_jobs(job_ids, statuses) if job_ids else {}
        self._publisher.deleted(deleted.values(), "operator")
        return deleted.keys()

    async def cancel(self, job_id: str, reason: str) -> Job:
        """Cancel the job. Does nothing to a canceled job; InvalidTransition if it is finished otherwise."""
        canceled = await self.cancel_all([job_id], reason)
        if canceled:
            return canceled[0]
        job = await self._get_refused(job_id, LIVE)
        if job.status is not JobStatus.CANCELED:
            raise InvalidTransition(job_id, f"Job {job_id} is {job.status}: it can no longer be canceled.")
        return job

    async def retry(self, job_id: str, attempts: int, *, fresh: bool = False, at_once: bool = False) -> Job:
        """Retry a dead-lettered or canceled job. It then has at least `attempts` attempts left."""
        retried = await self.retry_all([job_id], attempts, fresh=fresh, at_once=at_once)
        if retried:
            return retried[0]
        if holder := (await self._repo.unique_holders([job_id])).get(job_id):
            raise InvalidTransition(
                job_id,
                f"Job {job_id} has the unique key {holder.key!r}, which job {holder.job_id} holds until it "
                "is finished. Retry it then, or cancel that one.",
            )
        if workflow_id := (await self._repo.canceled_workflows_of([job_id])).get(job_id):
            raise InvalidTransition(
                job_id,
                f"Job {job_id} waits for other jobs of workflow {workflow_id}, which was canceled: it would "
                "be canceled again. Retry the workflow.",
            )
        job = await self._get_refused(job_id, REDRIVABLE)
        raise InvalidTransition(
            job_id, f"Job {job_id} is {job.status}: only DEAD_LETTERED and CANCELED jobs can be retried."
        )

    async def prioritize(self, job_id: str, priority: int) -> Job:
        """Change the priority. A running job keeps running; InvalidTransition if the job is finished."""
        prioritized = await self.prioritize_all([job_id], priority)
        if prioritized:
            return prioritized[0]
        job = await self._get_refused(job_id, LIVE)
        raise InvalidTransition(
            job_id, f"Job {job_id} is {job.status}: only jobs that are not finished can be prioritized."
        )

    async def delete(self, job_id: str) -> None:
        """Delete a finished job. InvalidTransition if it is not finished."""
        if await self.delete_all([job_id]):
            return
        job = await self.get(job_id)
        if job.status in TERMINAL and job.workflow_id is not None:
            raise InvalidTransition(
                job_id,
                f"Job {job_id} belongs to workflow {job.workflow_id}, which has not ended: other jobs may "
                "need it. Delete it then, or cancel the workflow.",
            )
        job = await self._get_refused(job_id, TERMINAL)
        raise InvalidTransition(
            job_id, f"Job {job_id} is {job.status}: only finished jobs can be deleted. Cancel it first."
        )

    async def _get_refused(self, job_id: str, allowed: Collection[JobStatus]) -> Job:
        """Return the job that was not changed. Raises JobLocked if its status allows the change."""
        job = await self.get(job_id)
        if job.status in allowed:
            raise JobLocked(job_id)
        return job


def page_key(job: Job) -> PageKey:
    return PageKey(job.submitted_at, job.id)


def job_weight(job: Job) -> int:
    return text_weight(job.metadata, job.last_error)


# Canceled workflows that the answer to a retry names.
WORKFLOWS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch. An empty token: no matching job is left.

    `locked`: the number of jobs skipped because another database session has locked their rows.
    `held`: the number of jobs skipped because another job holds their unique key.
    `needed`: the number of jobs skipped because their workflow has not ended.
    `in_canceled_workflows`: the number of jobs skipped because they wait in workflows that were canceled;
    `canceled_workflows` has some of these.
    """

    changed: int
    next_token: str
    locked: int = 0
    held: int = 0
    needed: int = 0
    in_canceled_workflows: int = 0
    canceled_workflows: Sequence[str] = ()


class Count(NamedTuple):
    """How many jobs match, by the time of the database."""

    jobs: int
    at: datetime
    is_cut: bool = False
    """There may be more: the newest SEARCHED_JOBS were read."""


@dataclass(frozen=True, slots=True)
class UndoneBatch:
    """The result of one batch of an undo. `running`: skipped jobs that were canceled while they ran.

    `held` and `locked` are those of the skipped jobs, as in Batch.
    """

    undone: int
    skipped: int
    running: int
    held: int
    locked: int
    next_token: str


class Selections:
    """A filter without a status matches jobs that are not finished."""

    def __init__(self, repo: PostgresJobRepo, jobs: Jobs) -> None:
        self._repo = repo
        self._jobs = jobs

    async def count(self, wanted: JobFilter) -> Count:
        """Return how many jobs match. It reads SEARCHED_JOBS at the most: completed ones of any topic."""
        statuses = wanted.statuses or LIVE
        counted_at = await self._repo.database_now()
        wanted = replace(wanted, statuses=statuses)
        if not wanted.searches and JobStatus.COMPLETED not in statuses:
            count = await self._repo.count_matching_jobs(wanted, most=SEARCHED_JOBS + 1)
            return Count(min(count, SEARCHED_JOBS), counted_at, is_cut=count > SEARCHED_JOBS)
        until = await self._jobs.search_end(wanted, "", SEARCHED_JOBS)
        count = await self._repo.count_matching_jobs(wanted, until=until)
        return Count(count, counted_at, is_cut=until is not None)

    async def cancel(self, wanted: JobFilter, reason: str, *, limit: int, token: str) -> Batch:
        """Cancel the next jobs that match. Skips jobs whose status changes before the update."""
        _require_some(wanted, "cancel")
        statuses = _allowed(wanted.statuses or LIVE, LIVE, "canceled")
        job_ids, next_token = await self._next(replace(wanted, statuses=statuses), limit, token)
        changed = await self._jobs.cancel_all(job_ids, reason, statuses)
        return await self._batch(job_ids, [job.id for job in changed], statuses, next_token)

    async def retry(
        self,
        wanted: JobFilter,
        attempts: int,
        *,
        limit: int,
        token: str,
        fresh: bool = False,
        at_once: bool = False,
    ) -> Batch:
        """Retry the next jobs that match. Skips jobs whose status changes before the update."""
        statuses = _allowed(_named(wanted, REDRIVABLE), REDRIVABLE, "retried")
        job_ids, next_token = await self._next(wanted, limit, token)
        retried = await self._jobs.retry_all(job_ids, attempts, statuses, fresh=fresh, at_once=at_once)
        changed = [job.id for job in retried]
        skipped = set(job_ids).difference(changed)
        held = await self._repo.unique_holders(skipped) if skipped else {}
        skipped -= held.keys()
        canceled = await self._repo.canceled_workflows_of(skipped) if skipped else {}
        batch = await self._batch(skipped - canceled.keys(), (), statuses, next_token)
        return replace(
            batch,
            changed=len(changed),
            held=len(held),
            in_canceled_workflows=len(canceled),
            canceled_workflows=sorted(set(canceled.values()))[:WORKFLOWS_NAMED],
        )

    async def prioritize(self, wanted: JobFilter, priority: int, *, limit: int, token: str) -> Batch:
        """Change the priority of the next jobs that match. Skips jobs that finish before it."""
        _require_some(wanted, "change")
        statuses = _allowed(wanted.statuses or LIVE, LIVE, "prioritized")
        job_ids, next_token = await self._next(replace(wanted, statuses=statuses), limit, token)
        changed = await self._jobs.prioritize_all(job_ids, priority, statuses)
        return await self._batch(job_ids, [job.id for job in changed], statuses, next_token)

    async def delete(self, wanted: JobFilter, *, limit: int, token: str) -> Batch:
        """Delete the next jobs that match. Skips jobs that are retried before the delete."""
        statuses = _allowed(_named(wanted, TERMINAL), TERMINAL, "deleted")
        job_ids, next_token = await self._next(wanted, limit, token)
        deleted = await self._jobs.delete_all(job_ids, statuses)
        skipped = set(job_ids).difference(deleted)
        needed = await self._repo.jobs_of_unended_workflows(skipped) if skipped else set()
        batch = await self._batch(skipped - needed, (), statuses, next_token)
        return replace(batch, changed=len(deleted), needed=len(needed))

    async def undo(self, action: str, *, limit: int, token: str, is_dry_run: bool) -> UndoneBatch:
        """Revert the action on the next jobs that it changed last. Skips jobs that have changed since."""
        after = parse_id(token, "page_token") if token else None
        found = await self._repo.jobs_of_action(action, after=after, limit=limit + 1)
        if not found and not token:
            raise InvalidTransition(
                action,
                f"Nothing is left to undo of action {action}: no job was changed by it last. Other "
                "actions came later, or the jobs are completed or deleted. A delete cannot be undone.",
            )
        batch, next_token = found[:limit], found[limit - 1].job_id if len(found) > limit else ""
        able = [one.job_id for one in batch if one.can_be_undone]
        undone = [] if is_dry_run else [job.id for job in await self._jobs.undo_all(able, action)]
        left = set(able).difference(undone)
        held = await self._repo.unique_holders(left, list(Scope)) if left else {}
        left -= held.keys()
        count, locked = len(undone), 0
        if is_dry_run:
            count = len(left)
        elif left:
            now = await self._repo.jobs_of_action(action, after=after, limit=limit)
            locked = sum(one.can_be_undone for one in now if one.job_id in left)
        running = sum(one.was_running for one in batch)
        return UndoneBatch(count, len(batch) - count, running, len(held), locked, next_token)

    async def _batch(
        self,
        job_ids: Collection[str],
        changed: Collection[str],
        statuses: frozenset[JobStatus],
        next_token: str,
    ) -> Batch:
        skipped = set(job_ids).difference(changed)
        found = await self._repo.job_statuses(skipped) if skipped else {}
        # A job whose status has changed is no longer in these statuses; one that still is was locked.
        locked = sum(status in statuses for status in found.values())
        return Batch(len(changed), next_token, locked)

    async def _next(self, wanted: JobFilter, limit: int, token: str) -> tuple[list[str], str]:
        after = decode_token(token) if token else None
        until = await self._jobs.search_end(wanted, token, SEARCHED_JOBS) if wanted.searches else None
        found = await self._repo.matching_jobs(wanted, limit=limit + 1, after=after, until=until)
        batch: list[PageKey] = found[:limit]
        end = batch[-1] if len(found) > limit else until
        return [key.id for key in batch], encode_token(end) if end is not None else ""


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
