"""Taking results in."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_server import tuning
from pulse_server.domain.errors import JobNotFound, PulseError
from pulse_server.domain.jobs import Job, Report
from pulse_server.domain.reports import is_repeat, refusal
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.group_commit import GroupCommit


class Reports:
    def __init__(self, repo: JobRepo) -> None:
        self._repo = repo
        self._commits: GroupCommit[Report, PulseError | None] = GroupCommit(
            self._take, lanes=tuning.REPORT_LANES, limit=tuning.REPORT_BATCH
        )

    async def report(self, reports: Sequence[Report]) -> list[PulseError | None]:
        """Record the results and answer for each, in order: None if it counts, else why it does not.

        A repeat of a report that was taken before counts.
        """
        answers: list[PulseError | None] = []
        for start in range(0, len(reports), tuning.REPORT_BATCH):
            answers.extend(await self._commits.add(reports[start : start + tuning.REPORT_BATCH]))
        return answers

    async def _take(self, reports: list[Report]) -> list[PulseError | None]:
        successes = [report.claim for report in reports if report.success]
        failures = [report for report in reports if not report.success]
        completed = await self._repo.complete_jobs(successes) if successes else set()
        failed = await self._repo.fail_jobs(failures) if failures else {}
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


def _judge(report: Report, jobs: dict[str, Job]) -> PulseError | None:
    job = jobs.get(report.claim.job_id)
    if job is None:
        return JobNotFound(report.claim.job_id)
    return None if is_repeat(report, job) else refusal(report, job)
