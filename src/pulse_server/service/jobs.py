"""Jobs: get, list and find them; cancel, retry, prioritize and delete them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pulse_server.base.errors import InvalidTransition, JobLocked, JobNotFound
from pulse_server.base.ids import Page, PageKey, decode_token, encode_token, page_of, text_weight
from pulse_server.database.audit import undo_id
from pulse_server.dispatch.publisher import Publisher
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
