"""The work on jobs, in memory: insert, claim, report, extend, release, reap."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import merge
from itertools import accumulate, islice

from pulse_server.domain.completions import Completions, TopicCompletions
from pulse_server.domain.error_groups import (
    LEASE_EXPIRED,
    LEASE_EXPIRED_GROUP,
    SNOOZED_TOO_OFTEN,
    SNOOZED_TOO_OFTEN_GROUP,
    TIME_LIMIT_EXCEEDED,
    TIME_LIMIT_EXCEEDED_GROUP,
)
from pulse_server.domain.errors import AlreadyExists, PulseError
from pulse_server.domain.jobs import Claim, ClaimedJob, Ended, Job, Level, NewJob, Outcome, Reaped, Submitted
from pulse_server.domain.progress import ProgressReport
from pulse_server.domain.reports import FailureReport, SnoozeReport
from pulse_server.domain.run_policies import MAX_SNOOZES
from pulse_server.domain.slots import Slots, Taker
from pulse_server.domain.status import JobStatus
from pulse_server.memory.backoff import retry_delay
from pulse_server.memory.leases import InMemoryLeases
from pulse_server.memory.progress import with_progress
from pulse_server.memory.rows import as_claimed, is_same, new_row, with_attempt
from pulse_server.repos.jobs import NO_PROGRESS, NO_RESULTS


class InMemoryWork(InMemoryLeases):
    """The transitions of producers, workers and the loops of a server."""

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self.answer("insert_jobs")
        return [self._insert(job) for job in jobs]

    async def hand_over_jobs(
        self,
        jobs: Sequence[NewJob],
        takers: Sequence[Taker | None],
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[Submitted | PulseError]:
        self.answer("hand_over_jobs")
        crowded = {
            topic
            for topic, entries in self.jobs.ready.groups.items()
            if any(self._is_at(self.jobs[job_id], levels) for _, job_id in entries)
        }
        answers: list[Submitted | PulseError] = []
        for job, taker in zip(jobs, takers, strict=True):
            answer = self._insert(job)
            is_new = isinstance(answer, Submitted) and not answer.duplicate
            if is_new and taker is not None and job.starts_at_once and job.topic not in crowded:
                self._claim(self.jobs[job.id], taker.worker_id, taker.confirms, lease)
                assert isinstance(answer, Submitted)
                answer = answer._replace(is_taken=True)
            answers.append(answer)
        return answers

    def _is_at(self, job: Job, levels: Sequence[Level] | None) -> bool:
        age = (self.clock.now() - job.submitted_at).total_seconds()
        return levels is None or any(
            (job.topic, job.priority) == level[:2] and age <= level.age_seconds for level in levels
        )

    async def claim_batch(
        self,
        topics: Collection[str],
        slots: Slots,
        lease: timedelta,
        levels: Sequence[Level] | None = None,
    ) -> list[ClaimedJob]:
        self.answer("claim_batch")
        ready = list(islice(self._ready(topics, levels), len(slots.order)))
        sizes = accumulate((len(job.payload) for job in ready), initial=0)
        fitting = [job for job, before in zip(ready, sizes, strict=False) if before < slots.most_bytes]
        picked = fitting or ready[:1]
        is_packed = len(picked) == len(slots.packed)
        is_packed &= sum(len(job.payload) for job in picked[:-1]) < slots.packed_bytes
        claimed = [
            self._claim(job, slots.workers[index], slots.confirms[index], lease)
            for index, job in zip(slots.packed if is_packed else slots.order, picked, strict=False)
        ]
        if claimed:
            age = self.clock.now() - picked[-1].submitted_at
            claimed[-1] = claimed[-1]._replace(age_seconds=age.total_seconds())
        return claimed

    def first_ready(self, topics: Collection[str]) -> Job | None:
        """Return the job that the next claim of the topics would lease. For `pulse.testing`."""
        return next(self._ready(topics, None), None)

    def _ready(self, topics: Collection[str], levels: Sequence[Level] | None) -> Iterator[Job]:
        """The jobs of the topics that a claim may lease, in the order of claims."""
        groups = self.jobs.ready.groups
        jobs = self.unlocked(merge(*(groups[topic] for topic in groups.keys() & topics)))
        return (job for job in jobs if self._is_at(job, levels) and self._may_start(job))

    def claim_job(self, job_id: str, worker_id: str, lease: timedelta, attempt: int | None) -> ClaimedJob:
        """Lease this job, due or not, for the attempt of this number. For `pulse.testing`."""
        job = self.jobs[job_id]
        return self._claim(
            job if attempt is None else self.put(job, attempts=attempt - 1), worker_id, False, lease
        )

    async def complete_jobs(
        self, claims: Sequence[Claim], results: Mapping[Claim, bytes] = NO_RESULTS
    ) -> Completions:
        self.answer("complete_jobs")
        counted: dict[str, list[tuple[float, int, bool]]] = {}
        for place, claim in enumerate(claims, 1):
            if (job := self.held_by(claim)) is not None:
                self.finish(job, JobStatus.COMPLETED, finished_by=job.locked_by)
                self.jobs[job.id] = replace(self.jobs[job.id], result=results.get(claim))
                ran_seconds = self.ended(job, JobStatus.COMPLETED).ran_seconds
                counted.setdefault(job.topic, []).append((ran_seconds, place, job.workflow_id is not None))
        self.settle()
        return Completions(claims, [_of_topic(topic, jobs) for topic, jobs in counted.items()])

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> dict[Claim, Ended]:
        self.answer("fail_jobs")
        counted = {}
        # By id, in the order in which the store locks its rows: the first one is due first.
        for report in sorted(reports, key=lambda report: report.claim.job_id):
            if (job := self.held_by(report.claim)) is not None:
                outcome = Outcome.TIMED_OUT if report.timed_out else Outcome.FAILED
                outcome = Outcome.DISCARDED if report.discard else outcome
                job = with_progress(job, report.progress, self.clock.now())
                job = with_attempt(job, outcome, report.error, self.clock.now())
                ends = report.discard or job.attempts >= job.max_attempts
                job = replace(job, error_group=report.error_group if ends else "")
                overrides = self.policy(job.topic).run
                is_overruled = report.retry_after_is_policy and overrides.backoff is not None
                wait = None if is_overruled else report.retry_after
                job = replace(job, start_by=None, waits_for=None)
                status = self._end_attempt(job, ends, report.error, wait)
                counted[report.claim] = self.ended(job, status)
        self.settle()
        return counted

    async def snooze_jobs(self, reports: Sequence[SnoozeReport]) -> dict[Claim, Ended]:
        self.answer("snooze_jobs")
        counted = {}
        for report in sorted(reports, key=lambda report: report.claim.job_id):
            if (job := self.held_by(report.claim)) is None:
                continue
            ends = job.snoozes >= MAX_SNOOZES
            if job.history and job.history[-1].outcome is Outcome.SNOOZED:
                job = replace(job, history=job.history[:-1])
            job = with_progress(job, report.progress, self.clock.now())
            job = with_attempt(job, Outcome.SNOOZED, report.reason, self.clock.now())
            job = replace(job, attempts=job.attempts - 1, snoozes=job.snoozes + 1, start_by=None)
            job = replace(job, waits_for=None)
            if ends:
                job = replace(job, error_group=SNOOZED_TOO_OFTEN_GROUP)
            error = SNOOZED_TOO_OFTEN if ends else job.last_error
            status = self._end_attempt(job, ends, error, report.delay)
            counted[report.claim] = self.ended(job, status)
        self.settle()
        return counted

    async def release_jobs(
        self,
        claims: Sequence[Claim],
        unread_for: timedelta | None = None,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
    ) -> dict[str, str]:
        self.answer("release_jobs")
        released = {}
        for claim in claims:
            if (job := self.held_by(claim, strict=True)) is not None:
                assert job.started_at is not None
                if unread_for and (job.delivered or job.started_at >= self.clock.now() - unread_for):
                    continue
                self.put(
                    with_progress(job, progress.get(claim), self.clock.now()),
                    status=JobStatus.RETRYING,
                    ready=True,
                    attempts=job.attempts - 1,
                    started_at=job.started_at if job.attempts > 1 or job.history or job.steps else None,
                    locked_by=None,
                    lease_until=None,
                )
                released[job.id] = job.topic
        return released

    async def reap_expired(self, limit: int, expired_before: datetime | None = None) -> list[Reaped]:
        self.answer("reap_expired")
        now = min(self.clock.now(), expired_before or self.clock.now())
        spared = {worker_id for worker_id, until in self.spared.items() if until > now}
        lapsed = [
            job
            for job in self.free()
            if job.lease_until is not None and job.lease_until < now and job.locked_by not in spared
        ]
        lapsed.sort(key=lambda job: job.lease_until or now)
        reaped = [self._reap(job) for job in lapsed[:limit]]
        self.settle()
        return reaped

    async def spare_workers(self, worker_ids: Collection[str], lease: timedelta) -> None:
        self.answer("spare_workers")
        self.spared |= dict.fromkeys(worker_ids, self.clock.now() + lease)

    def _insert(self, job: NewJob) -> Submitted | PulseError:
        by_key = self._with_key(job.topic, job.idempotency_key) if job.idempotency_key is not None else []
        if job.id not in self.jobs and not by_key:
            self.jobs[job.id] = new_row(job, self.clock.now())
            return Submitted(job.id, False, submitted_at=self.jobs[job.id].submitted_at)
        if job.id in self.jobs and not is_same(job, self.jobs[job.id]):
            return AlreadyExists(f"job_id {job.id}", job.id)
        for other in by_key:
            if not is_same(job, other) or (job.id in self.jobs and other.id != job.id):
                return AlreadyExists(f"idempotency_key {job.idempotency_key!r}", other.id)
        existing = by_key[0] if by_key else self.jobs[job.id]
        return Submitted(existing.id, True, submitted_at=existing.submitted_at)

    def _with_key(self, topic: str, key: str) -> list[Job]:
        return [self.jobs[job_id] for _, job_id in self.jobs.keyed[topic, key]]

    def _claim(self, job: Job, worker_id: str, confirms: bool, lease: timedelta) -> ClaimedJob:
        must_confirm = job.started_at is not None or job.max_attempts - job.attempts == 1
        job = self.put(
            job,
            status=JobStatus.RUNNING,
            ready=False,
            attempts=job.attempts + 1,
            run=job.run + 1,
            locked_by=worker_id,
            lease_until=self.clock.now() + lease,
            started_at=self.clock.now(),
            delivered=not confirms,
        )
        return as_claimed(job, self.steps_of(job.id))._replace(confirm=confirms and must_confirm)

    def _reap(self, job: Job) -> Reaped:
        claim = Claim(job.id, job.locked_by, job.attempts, job.run)
        policy = self._run_policy(job)
        assert policy.max_crashes is not None
        assert job.started_at is not None
        assert job.lease_until is not None
        wait = retry_delay(job.attempts, policy.backoff)
        is_last, crashes = job.attempts >= job.max_attempts, job.crashes + 1
        ends = job.delivered and (is_last or crashes >= policy.max_crashes)
        timed_out = (
            job.delivered
            and policy.timeout is not None
            and job.lease_until >= job.started_at + policy.timeout + self.lease
        )
        outcome = Outcome.TIMED_OUT if timed_out else Outcome.LEASE_EXPIRED
        error = TIME_LIMIT_EXCEEDED if timed_out else LEASE_EXPIRED
        group = TIME_LIMIT_EXCEEDED_GROUP if timed_out else LEASE_EXPIRED_GROUP
        changed = with_attempt(job, outcome, error, self.clock.now())
        changed = replace(changed, error_group=group if ends else "")
        if job.delivered:
            changed = replace(changed, crashes=crashes, start_by=None, waits_for=None)
        else:
            changed = replace(changed, attempts=job.attempts - 1)
        if ends and not is_last:
            error += f", {crashes} time{'s' * (crashes != 1)}: max_crashes is reached"
        status = self._end_attempt(changed, ends, error, wait)
        return Reaped(claim, job.topic, status, job.delivered, timed_out)

    def ended(self, job: Job, status: JobStatus) -> Ended:
        ran = self.clock.now() - (job.started_at or self.clock.now())
        return Ended(status, job.topic, ran.total_seconds())

    def _end_attempt(self, job: Job, ends: bool, error: str | None, wait: timedelta | None) -> JobStatus:
        backoff = self._run_policy(job).backoff
        delay = retry_delay(job.attempts, backoff) if wait is None else wait
        job = replace(job, last_error=error, next_run_at=self.clock.now() + delay)
        if ends:
            return self.finish(job, JobStatus.DEAD_LETTERED, finished_by=job.locked_by).status
        return self.put(job, status=JobStatus.RETRYING, locked_by=None, lease_until=None).status


def _of_topic(topic: str, jobs: Sequence[tuple[float, int, bool]]) -> TopicCompletions:
    ran_seconds, places, in_workflows = zip(*jobs, strict=True)
    return TopicCompletions(topic, ran_seconds, places, any(in_workflows))
