"""What happens to jobs: submit, report, extend, reap, promote, cancel, retry, undo, wait and forget.

Services, loops and RPCs over the store of `jobs`. It imports `steps`, `topics`, `dispatch` and the rooms
below them. Start with `submissions.py` and `attempts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch import DispatchRoom
from pulse_server.doors.admission import Doors
from pulse_server.steps import StepsRoom
from pulse_server.topics import TopicsRoom
from pulse_server.topics.rules import kept_by_status
from pulse_server.wakeups import Foundation
from pulse_server.work.attempts import LeaseKeeping, Reports
from pulse_server.work.awaiting import LOOK, LOOK_WITHOUT_LINE, AwaitedJobs
from pulse_server.work.job_rpcs import AwaitingRpcs, JobRpcs, SelectionRpcs
from pulse_server.work.jobs import Jobs, Selections
from pulse_server.work.retention import ExpiredJobs, PostgresCompletedDayRepo, RetentionKeeping
from pulse_server.work.submissions import (
    PROMOTE_INTERVAL,
    ArrivalQueries,
    Arrivals,
    Promoter,
    StartLimits,
    Submissions,
)
from pulse_server.work.worker_rpcs import WorkRpcs


@dataclass(frozen=True, slots=True)
class WorkRoom:
    jobs: Jobs
    lease_keeping: LeaseKeeping
    arrivals: Arrivals
    promoter: Promoter
    start_limits: StartLimits
    retention: RetentionKeeping
    awaited_jobs: AwaitedJobs
    job_rpcs: JobRpcs
    selection_rpcs: SelectionRpcs
    awaiting_rpcs: AwaitingRpcs
    worker_rpcs: WorkRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (
            *self.lease_keeping.loops,
            self.arrivals.loop,
            self.promoter.loop,
            self.start_limits.loop,
            *self.retention.loops,
            self.awaited_jobs.loop,
        )


def work_of(
    base: Foundation, dispatch: DispatchRoom, topics: TopicsRoom, steps: StepsRoom, doors: Doors
) -> WorkRoom:
    settings, database, repo = base.settings, base.database, base.jobs
    publisher, rules = dispatch.publisher, topics.rules
    jobs = Jobs(repo, publisher)
    lease_keeping = LeaseKeeping(settings, database, repo, publisher, dispatch.spared_workers)
    arrivals = Arrivals(
        ArrivalQueries(database),
        publisher,
        max_attempts=rules.default_attempts,
        max_result_bytes=settings.max_result_bytes,
        max_workflow_jobs=settings.max_workflow_jobs,
        counted=doors.counted_calls,
    )
    retention = RetentionKeeping(
        base.place(ExpiredJobs(database)),
        PostgresCompletedDayRepo(database),
        publisher,
        kept_by_status(settings.retention.entries),
        audit_kept=settings.retention_audit,
        metrics=base.metrics,
    )
    look = LOOK_WITHOUT_LINE if settings.behind_pooler else LOOK
    awaited_jobs = AwaitedJobs(database, base.watchers, base.line, dispatch.roster.held_jobs, look=look)
    submissions = base.place(Submissions(repo, dispatch.hub, publisher))
    reports = base.place(Reports(repo, publisher, steps.service.suspend))
    return WorkRoom(
        jobs,
        lease_keeping,
        arrivals,
        Promoter(repo, publisher, interval=PROMOTE_INTERVAL),
        StartLimits(repo, publisher),
        retention,
        awaited_jobs,
        JobRpcs(submissions, jobs, rules, doors.change_log, arrivals.loop.nudge, topics.notes),
        SelectionRpcs(Selections(repo, jobs)),
        AwaitingRpcs(awaited_jobs, doors.responses, doors.lines),
        WorkRpcs(
            dispatch.hub,
            dispatch.claims,
            dispatch.gate,
            lease_keeping.leases(rules),
            reports,
            rules,
            lease_ttl=settings.lease_ttl,
            heartbeat=settings.heartbeat_interval,
            max_result_bytes=settings.max_result_bytes,
            steps=settings.steps,
        ),
    )
