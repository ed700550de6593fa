"""Reports: record the results of attempts, many requests in one statement."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pulse_server.base.bounds import error_group
from pulse_server.base.errors import JobLocked, JobNotFound, PulseError
from pulse_server.base.sharing import GroupCommit
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import (
    NO_COMPLETIONS,
    Completions,
    FailureReport,
    Report,
    ResultReport,
    SnoozeReport,
    SuspendReport,
    claim_of,
    is_repeat,
    refusal,
    stands,
)
from pulse_server.jobs.rules import Claim, Ended, Job, JobStatus
from pulse_server.jobs.store import PostgresJobRepo

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
REPORT_BATCH = 1000
# Two statements in flight keep the database busy while this process prepares the next batch.
REPORT_SLOTS = 2

Suspend: TypeAlias = Callable[[Sequence[SuspendReport]], Awaitable[Mapping[Claim, Ended]]]

log = logging.getLogger(__name__)


class Reports:
    def __init__(
        self,
        repo: PostgresJobRepo,
        publisher: Publisher,
        suspend: Suspend | None = None,
        *,
        grouping: type[GroupCommit[Any, Any]] = GroupCommit,
    ) -> None:
        """`suspend` lets jobs wait, and publishes it. Without it there are no such reports."""
        self._repo = repo
        self._suspend = suspend
        self._publisher = publisher
        self._commits: GroupCommit[Report, PulseError | None] = grouping(
            self._take, slots=REPORT_SLOTS, limit=REPORT_BATCH, size_of=_size
        )

    async def report(self, reports: Sequence[Report]) -> Sequence[PulseError | None]:
        """Record the results and answer for each, in order: None if it counts, else why it does not.

        A repeat of a report that was taken before counts.
        """
        return await self._commits.add_all(reports)

    async def holder(self, job_id: str) -> str | None:
        """The worker that holds the job, or that had it last; None if no worker had it."""
        job = (await self._repo.look_up_jobs([job_id])).get(job_id)
        if job is None:
            return None
        return job.locked_by or job.finished_by or (job.history[-1].worker_id if job.history else None)

    async def _take(self, reports: Sequence[Report]) -> list[PulseError | None]:
        self._publisher.batch_sent("report", len(reports))
        plain = [report for report in reports if isinstance(report, Claim)]
        others = [] if len(plain) == len(reports) else [one for one in reports if not isinstance(one, Claim)]
        completed = await self._complete(plain, [one for one in others if isinstance(one, ResultReport)])
        failures = _failures(others)
        failed = await self._repo.fail_jobs(failures) if failures else {}
        # One may be in a batch twice.
        counted = {report.claim: report for report in failures if report.claim in failed}
        ended = [(report, failed[claim]) for claim, report in counted.items()]
        self._publisher.failed(ended)
        for report, end in ended:
            _log(report.claim, end)
        waiting = await self._let_wait(others)
        if len(completed) + len(failed) + len(waiting) == len(reports):
            return [None] * len(reports)
        counted_claims = {*failed, *waiting}
        rest = {
            report: claim.job_id
            for report in reports
            if (claim := claim_of(report))
            not in (completed if isinstance(report, Claim | ResultReport) else counted_claims)
        }
        jobs = await self._repo.look_up_jobs(set(rest.values())) if rest else {}
        return [_judge(report, jobs) if report in rest else None for report in reports]

    async def _complete(self, plain: Sequence[Claim], with_results: Sequence[ResultReport]) -> Completions:
        if not plain and not with_results:
            return NO_COMPLETIONS
        claims = [*plain, *(report.claim for report in with_results)]
        # Of several reports on one claim, the first is stored.
        results = {report.claim: report.result for report in reversed(with_results)}
        completed = await self._repo.complete_jobs(claims, results)
        self._publisher.completed(completed)
        return completed

    async def _let_wait(self, reports: Sequence[Report]) -> Mapping[Claim, Ended]:
        """Snooze and suspend jobs. Returns the claims that counted."""
        waiting: dict[Claim, Ended] = {}
        if snoozes := [report for report in reports if isinstance(report, SnoozeReport)]:
            waiting |= await self._repo.snooze_jobs(snoozes)
            self._publisher.snoozed(waiting)
        suspensions = [report for report in reports if isinstance(report, SuspendReport)]
        if suspensions and self._suspend is not None:
            waiting |= await self._suspend(suspensions)
        for claim, end in waiting.items():
            _log(claim, end)
        return waiting


def _failures(reports: Sequence[Report]) -> list[FailureReport]:
    return [
        report._replace(error_group=error_group(report.error))
        for report in reports
        if isinstance(report, FailureReport)
    ]


def _log(claim: Claim, ended: Ended) -> None:
    # Without the error: handlers put pieces of their payloads into it. It is kept with the job.
    facts = {
        "job_id": claim.job_id,
        "topic": ended.topic,
        "worker_id": claim.worker_id,
        "attempt": claim.attempt,
    }
    if ended.status is JobStatus.DEAD_LETTERED:
        log.warning("job_dead_lettered", extra=facts)
    else:
        log.debug("attempt_failed", extra=facts)


def _judge(report: Report, jobs: dict[str, Job]) -> PulseError | None:
    claim = claim_of(report)
    job = jobs.get(claim.job_id)
    if job is None:
        return JobNotFound(claim.job_id)
    if stands(claim, job):
        return JobLocked(job.id)  # it would have counted
    return None if is_repeat(report, job) else refusal(report, job)


def _size(report: Report) -> int:
    """About how many bytes the report adds to a statement."""
    # Test for a claim first: nearly all reports are claims, and a match would test it last.
    if isinstance(report, Claim):
        return 0
    if isinstance(report, ResultReport):
        return len(report.result)
    if isinstance(report, SuspendReport):
        text = report.step
    else:
        text = report.error if isinstance(report, FailureReport) else report.reason
    return len(text) + (0 if report.progress is None else report.progress.size)
