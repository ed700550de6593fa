"""What random walks expect of the store: jobs in a dict, and the transitions that the walks make.

No policies, limits, unique keys, progress or locks: no walk has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse_server.base.bounds import LEASE_EXPIRED, LEASE_EXPIRED_GROUP
from pulse_server.base.errors import AlreadyExists, PulseError
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reports import (
    Completions,
    ExtendedLeases,
    FailureReport,
    Promotion,
    Slots,
    SnoozeReport,
    Taker,
    TopicCompletions,
)
from pulse_server.jobs.rules import (
    LIVE,
    REDRIVABLE,
    TERMINAL,
    WAITING,
    Attempt,
    Cancellation,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobStatus,
    Outcome,
    Reaped,
    Step,
)
from tests.retry_delays import CANCELED_REST, retry_delay

HISTORY_CAP = 20
MAX_CRASHES = 5
# When a job is due that waits for a signal without a time limit, or for other jobs of its workflow.
WITHOUT_END = datetime(9999, 1, 1, tzinfo=UTC)
_AN_HOUR = timedelta(hours=1)
_A_MOMENT = timedelta(milliseconds=1)
_TAKEN_OVER = [field.name for field in fields(Job) if field.name in NewJob._fields]


class JobModel:
    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)
        self.jobs: dict[str, Job] = {}

    def now(self) -> datetime:
        """Each reading is a microsecond after the last: no two are equal."""
        self._now += timedelta(microseconds=1)
        return self._now

    def put(self, job: Job, **changes: Any) -> Job:
        self.jobs[job.id] = changed = replace(job, **changes)
        return changed

    def existing(self, job_ids: Collection[str], statuses: Collection[JobStatus]) -> list[Job]:
        jobs = (self.jobs[job_id] for job_id in sorted(set(job_ids)) if job_id in self.jobs)
        return [job for job in jobs if job.status in statuses]

    def held_by(self, claim: Claim, *, strict: bool = False) -> Job | None:
        """The job, if the claim still holds it. Fields that a claim lacks are not checked, unless strict."""
        job = self.jobs.get(claim.job_id)
        if job is None or job.locked_by is None:
            return None
        if strict and None in (claim.worker_id, claim.attempt):
            return None
        return job if claim.covers(_claim_of(job)) else None

    def settle(self) -> None:
        """Bring workflows in step with jobs that ended or came back. There are none here."""

    # --- producers

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Submitted | PulseError]:
        return [self._insert(job) for job in jobs]

    async def hand_over_jobs(
        self, jobs: Sequence[NewJob], takers: Sequence[Taker | None], lease: timedelta
    ) -> list[Submitted | PulseError]:
        crowded = {job.topic for job in self.jobs.values() if job.ready}
        answers = []
        for job, taker in zip(jobs, takers, strict=True):
            answer = self._insert(job)
            is_new = isinstance(answer, Submitted) and not answer.duplicate
            if is_new and taker is not None and job.starts_at_once and job.topic not in crowded:
                self._claim(self.jobs[job.id], taker.worker_id, taker.confirms, lease)
                answer = answer._replace(is_taken=True)
            answers.append(answer)
        return answers

    def _insert(self, job: NewJob) -> Submitted | PulseError:
        of_key = [
            other
            for other in self.jobs.values()
            if job.idempotency_key is not None
            and (other.topic, other.idempotency_key) == (job.topic, job.idempotency_key)
        ]
        if job.id not in self.jobs and not of_key:
            self.jobs[job.id] = new_row(job, self.now())
            return Submitted(job.id, False)
        if job.id in self.jobs and not _is_same(job, self.jobs[job.id]):
            return AlreadyExists(f"job_id {job.id}", job.id)
        for other in of_key:
            if not _is_same(job, other) or (job.id in self.jobs and other.id != job.id):
                return AlreadyExists(f"idempotency_key {job.idempotency_key!r}", other.id)
        return Submitted(of_key[0].id if of_key else job.id, True)

    # --- workers

    async def claim_batch(self, topics: Collection[str], slots: Slots, lease: timedelta) -> list[ClaimedJob]:
        ready = [job for job in self.jobs.values() if job.ready and job.topic in topics]
        ready.sort(key=lambda job: (-job.priority, job.submitted_at))
        return [
            self._claim(job, slots.workers[index], slots.confirms[index], lease)
            for index, job in zip(slots.order, ready, strict=False)
        ]

    def _claim(self, job: Job, worker_id: str, confirms: bool, lease: timedelta) -> ClaimedJob:
        must_confirm = job.started_at is not None or job.max_attempts - job.attempts == 1
        job = self.put(
            job,
            status=JobStatus.RUNNING,
            ready=False,
            attempts=job.attempts + 1,
            run=job.run + 1,
            locked_by=worker_id,
            lease_until=self.now() + lease,
            started_at=self.now(),
            delivered=not confirms,
        )
        steps = self.steps_of(job.id)
        return ClaimedJob(
            id=job.id,
            topic=job.topic,
            payload=job.payload,
            attempt=job.attempts,
            run=job.run,
            priority=job.priority,
            max_attempts=job.max_attempts,
            metadata=job.metadata or None,
            idempotency_key=job.idempotency_key,
            worker_id=worker_id,
            confirm=confirms and must_confirm,
            waited_seconds=0.0,
            has_steps=steps is not None,
            steps=steps,
        )

    def steps_of(self, job_id: str) -> list[Step] | None:
        """The steps of a job. None: it has neither steps nor signals."""
        return None

    async def complete_jobs(
        self, claims: Sequence[Claim], results: Mapping[Claim, bytes] | None = None
    ) -> Completions:
        counted: dict[str, list[int]] = {}
        for place, claim in enumerate(claims, 1):
            if (job := self.held_by(claim)) is not None:
                self.finish(job, JobStatus.COMPLETED, job.locked_by)
                self.put(self.jobs[job.id], result=(results or {}).get(claim), waits_for=None)
                counted.setdefault(job.topic, []).append(place)
        self.settle()
        return Completions(
            claims,
            [TopicCompletions(topic, [0.0] * len(places), places) for topic, places in counted.items()],
        )

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> dict[Claim, Ended]:
        counted = {}
        # By id, in the order in which the store locks its rows: the first one is due first.
        for report in sorted(reports, key=lambda report: report.claim.job_id):
            if (job := self.held_by(report.claim)) is not None:
                ends = report.discard or job.attempts >= job.max_attempts
                job = self.with_attempt(
                    job, Outcome.DISCARDED if report.discard else Outcome.FAILED, report.error
                )
                job = replace(job, error_group=report.error_group if ends else "", waits_for=None)
                counted[report.claim] = self._end_attempt(job, ends, report.error, report.retry_after)
        self.settle()
        return counted

    async def snooze_jobs(self, reports: Sequence[SnoozeReport]) -> dict[Claim, Ended]:
        counted = {}
        for report in sorted(reports, key=lambda report: report.claim.job_id):
            if (job := self.held_by(report.claim)) is not None:
                job = self.with_attempt(job, Outcome.SNOOZED, report.reason)
                job = replace(job, attempts=job.attempts - 1, snoozes=job.snoozes + 1, waits_for=None)
                counted[report.claim] = self._end_attempt(job, False, job.last_error, report.delay)
        return counted

    async def extend_leases(self, claims: Sequence[Claim], lease: timedelta) -> ExtendedLeases:
        held = {claim: job for claim in claims if (job := self.held_by(claim)) is not None}
        for job in held.values():
            self.put(job, lease_until=self.now() + lease, delivered=True)
        return ExtendedLeases(set(held), set(), set(), [], {})

    async def release_jobs(self, claims: Sequence[Claim]) -> dict[str, str]:
        released = {}
        for claim in claims:
            if (job := self.held_by(claim, strict=True)) is not None:
                has_run = job.attempts > 1 or job.history or job.steps
                self.put(
                    job,
                    status=JobStatus.RETRYING,
                    ready=True,
                    attempts=job.attempts - 1,
                    started_at=job.started_at if has_run else None,
                    locked_by=None,
                    lease_until=None,
                )
                released[job.id] = job.topic
        return released

    # --- the loops of a server

    async def reap_expired(self, limit: int) -> list[Reaped]:
        now = self.now()
        expired = [job for job in self.jobs.values() if job.lease_until is not None and job.lease_until < now]
        expired.sort(key=lambda job: job.lease_until or now)
        reaped = [self._reap(job) for job in expired[:limit]]
        self.settle()
        return reaped

    def _reap(self, job: Job) -> Reaped:
        is_last, crashes = job.attempts >= job.max_attempts, job.crashes + 1
        ends = job.delivered and (is_last or crashes >= MAX_CRASHES)
        changed = self.with_attempt(job, Outcome.LEASE_EXPIRED, LEASE_EXPIRED)
        changed = replace(changed, error_group=LEASE_EXPIRED_GROUP if ends else "")
        if job.delivered:
            changed = replace(changed, crashes=crashes, waits_for=None)
        else:
            changed = replace(changed, attempts=job.attempts - 1)
        error = LEASE_EXPIRED
        if ends and not is_last:
            error += f", {crashes} times: max_crashes is reached"
        ended = self._end_attempt(changed, ends, error, retry_delay(job.attempts))
        return Reaped(_claim_of(job), job.topic, ended.status, job.delivered)

    async def promote_due(self, limit: int) -> Promotion:
        now = self.now()
        waiting = [job for job in self.jobs.values() if job.status in WAITING and not job.ready]
        waiting.sort(key=lambda job: job.next_run_at)
        due = [job for job in waiting if job.next_run_at <= now][:limit]
        for job in due:
            self.put(job, ready=True)
        later = [job.next_run_at - now for job in waiting if job.next_run_at > now]
        return Promotion(len(due), frozenset(job.topic for job in due), min(later, default=None))

    # --- operators

    async def cancel_jobs(
        self, job_ids: Collection[str], reason: str, statuses: Collection[JobStatus] = LIVE
    ) -> list[Cancellation]:
        canceled = []
        for job in self.existing(job_ids, LIVE & set(statuses)):
            ended = _claim_of(job) if job.locked_by is not None else None
            changed = self.with_attempt(job, Outcome.CANCELED, reason) if ended else job
            changed = replace(changed, last_error=reason or job.last_error)
            canceled.append(Cancellation(self.finish(changed, JobStatus.CANCELED), ended))
        self.settle()
        return [replace(entry, job=_as_one_of(job_ids, entry.job)) for entry in canceled]

    async def retry_jobs(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
    ) -> list[Job]:
        retried = []
        for job in self.existing(job_ids, REDRIVABLE & set(statuses)):
            if not self.may_come_back(job):
                continue
            now = self.now()
            due = WITHOUT_END if job.held else self._retried_at(job, now)
            after = self.put(
                job,
                status=JobStatus.PENDING,
                ready=due <= now,
                next_run_at=due,
                max_attempts=max(job.max_attempts, job.attempts + attempts),
                finished_at=None,
                finished_by=None,
                error_group="",
                crashes=0,
                waits_for=None,
            )
            retried.append(self.without_steps(after) if fresh else after)
        self.settle()
        return [_as_one_of(job_ids, job) for job in retried]

    def may_come_back(self, job: Job) -> bool:
        return True

    def without_steps(self, job: Job) -> Job:
        return job

    def _retried_at(self, job: Job, now: datetime) -> datetime:
        if job.status is not JobStatus.CANCELED or job.finished_at is None:
            return now
        if job.run == 0 and now < job.next_run_at < WITHOUT_END:
            return job.next_run_at
        was_held = bool(job.history) and job.history[-1].outcome is Outcome.CANCELED
        return max(now, job.finished_at + CANCELED_REST) if was_held else now

    async def prioritize_jobs(self, job_ids: Collection[str], priority: int) -> list[Job]:
        changed = [self.put(job, priority=priority) for job in self.existing(job_ids, LIVE)]
        return [_as_one_of(job_ids, job) for job in changed]

    async def delete_jobs(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        found = self.existing(job_ids, TERMINAL)
        for job in found:
            del self.jobs[job.id]
        return {job.id: job.status for job in found}

    async def get_job(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)

    # --- how an attempt ends

    def with_attempt(self, job: Job, outcome: Outcome, error: str) -> Job:
        """The job with its running attempt in its history. Waits in a row are one entry: the last."""
        waits = (Outcome.SNOOZED, Outcome.SUSPENDED)
        history = job.history
        if outcome in waits and history and history[-1].outcome is outcome:
            history = history[:-1]
        assert job.locked_by is not None
        ended = Attempt(job.attempts, job.run, job.locked_by, job.started_at, self.now(), outcome, error)
        return replace(job, history=(*history, ended)[-HISTORY_CAP:])

    def _end_attempt(self, job: Job, ends: bool, error: str | None, wait: timedelta | None) -> Ended:
        delay = retry_delay(job.attempts) if wait is None else wait
        job = replace(job, last_error=error, next_run_at=self.now() + delay)
        if ends:
            job = self.finish(job, JobStatus.DEAD_LETTERED, job.locked_by)
        else:
            job = self.put(job, status=JobStatus.RETRYING, locked_by=None, lease_until=None)
        return Ended(job.status, job.topic, 0.0)

    def finish(self, job: Job, status: JobStatus, finished_by: str | None = None) -> Job:
        return self.put(
            job,
            status=status,
            ready=False,
            finished_at=self.now(),
            finished_by=finished_by,
            locked_by=None,
            lease_until=None,
        )


class ModelTime:
    """Moves the times of chosen jobs, as the time machine of the store does."""

    def __init__(self, model: JobModel) -> None:
        self._model = model

    async def lapse_leases(self, *job_ids: str) -> None:
        self._move("lease_until", job_ids)

    async def make_due(self, *job_ids: str) -> None:
        self._move("next_run_at", job_ids)

    def _move(self, field: str, job_ids: Sequence[str]) -> None:
        for number, job_id in enumerate(job_ids):
            moment = self._model.now() - _AN_HOUR + number * _A_MOMENT
            self._model.put(self._model.jobs[job_id], **{field: moment})


def new_row(job: NewJob, now: datetime) -> Job:
    starts = job.run_at if job.run_at is not None else now + (job.delay or timedelta(0))
    given = {name: getattr(job, name) for name in _TAKEN_OVER}
    return Job(
        **given | {"metadata": dict(job.metadata or {})},
        status=JobStatus.PENDING,
        attempts=0,
        submitted_at=now,
        next_run_at=starts,
        ready=starts <= now if job.run_at is not None else job.delay is None,
    )


def _is_same(new: NewJob, job: Job) -> bool:
    """Whether a submit repeats the one of this job."""
    return (new.topic, new.payload) == (job.topic, job.payload)


def _claim_of(job: Job) -> Claim:
    return Claim(job.id, job.locked_by, job.attempts, job.run)


def _as_one_of(job_ids: Collection[str], job: Job) -> Job:
    """Answers about several jobs leave out payload and history."""
    return job if len(job_ids) == 1 else replace(job, payload=b"", history=())
