"""Taking results in."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from pulse import failpoints
from pulse_server import tuning
from pulse_server.domain.error_groups import error_group
from pulse_server.domain.errors import JobLocked, JobNotFound, PulseError, Unavailable
from pulse_server.domain.jobs import Claim, Ended, Job, Report
from pulse_server.domain.reports import is_repeat, refusal, stands
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.group_commit import GroupCommit
from pulse_server.service.transitions import Transitions, changed
from pulse_server.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Reports:
    def __init__(
        self, repo: JobRepo, metrics: Metrics | None = None, transitions: Transitions | None = None
    ) -> None:
        self._repo = repo
        self._metrics = metrics or Metrics()
        self._transitions = transitions or Transitions()
        self._commits: GroupCommit[Report, PulseError | None] = GroupCommit(
            self._take, lanes=tuning.REPORT_LANES, limit=tuning.REPORT_BATCH, size_of=_size
        )
        self._commits.on_commit(lambda size: self._metrics.batch_size.observe("report", value=size))

    @failpoints.after("report.answered", Unavailable)
    async def report(self, reports: Sequence[Report]) -> list[PulseError | None]:
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

    async def _take(self, reports: list[Report]) -> list[PulseError | None]:
        successes = [report.claim for report in reports if report.success]
        failures = [
            report._replace(error_group=error_group(report.error)) for report in reports if not report.success
        ]
        completed = await self._repo.complete_jobs(successes) if successes else {}
        self._count_completed(completed.values())
        failed = await self._repo.fail_jobs(failures) if failures else {}
        self._count_failed(failures, failed)
        self._transitions.tell(lambda: _changes(reports, completed | failed))
        if len(completed) + len(failed) == len(reports):
            return [None] * len(reports)
        refused = {
            report.claim.job_id
            for report in reports
            if report.claim not in (completed if report.success else failed)
        }
        jobs = await self._repo.look_up_jobs(refused) if refused else {}
        return [
            None if report.claim in (completed if report.success else failed) else _judge(report, jobs)
            for report in reports
        ]

    def _count_completed(self, ended: Collection[Ended]) -> None:
        metrics = self._metrics
        ran = [(topic, seconds) for _, topic, seconds in ended]
        metrics.count_and_observe(metrics.completed, metrics.run_time, ran, "completed")

    def _count_failed(self, reports: Sequence[Report], failed: dict[Claim, Ended]) -> None:
        metrics = self._metrics
        for report in {report.claim: report for report in reports}.values():  # one may be in a batch twice
            if (ended := failed.get(report.claim)) is None:
                continue
            topic = metrics.topic(ended.topic, is_worked=True)
            metrics.failed.add(topic, "discarded" if report.discard else "error")
            metrics.run_time.observe(topic, "failed", value=ended.ran_seconds)
            is_over = ended.status is JobStatus.DEAD_LETTERED
            (metrics.dead_lettered if is_over else metrics.retried).add(topic)
            _log(report, ended)


def _changes(reports: Sequence[Report], ended: dict[Claim, Ended]) -> list[Transition]:
    return [
        changed(
            report.claim.job_id,
            ended[report.claim].topic,
            ended[report.claim].status,
            report.claim.attempt,
            report.claim.worker_id,
            report.error,
        )
        for report in {report.claim: report for report in reports}.values()
        if report.claim in ended
    ]


def _log(report: Report, ended: Ended) -> None:
    # Without the error: handlers put pieces of their payloads into it. It is kept with the job.
    facts = {
        "job_id": report.claim.job_id,
        "topic": ended.topic,
        "worker_id": report.claim.worker_id,
        "attempt": report.claim.attempt,
    }
    if ended.status is JobStatus.DEAD_LETTERED:
        log.warning("job_dead_lettered", extra=facts)
    else:
        log.debug("attempt_failed", extra=facts)


def _judge(report: Report, jobs: dict[str, Job]) -> PulseError | None:
    job = jobs.get(report.claim.job_id)
    if job is None:
        return JobNotFound(report.claim.job_id)
    if stands(report.claim, job):
        return JobLocked(job.id)  # it would have counted
    return None if is_repeat(report, job) else refusal(report, job)


def _size(report: Report) -> int:
    """About how many bytes the report adds to a statement."""
    return len(report.error)
