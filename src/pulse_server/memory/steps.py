"""The port to steps and signals, in memory. ADR-0069"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pulse_server.domain.error_groups import error_group
from pulse_server.domain.jobs import Claim, Ended, Job, Outcome
from pulse_server.domain.reports import NewStep, SuspendReport
from pulse_server.domain.status import TERMINAL, JobStatus
from pulse_server.domain.steps import (
    Sent,
    Signal,
    Step,
    StepBounds,
    StepKind,
    Swept,
    Take,
    too_many_steps,
)
from pulse_server.memory.jobs import InMemoryJobRepo
from pulse_server.memory.progress import with_progress
from pulse_server.memory.rows import WITHOUT_END, KeptSignal, as_read, with_attempt

# The names of the signals that a step waits for are stored together, one name per line.
_NEXT = "\n"
# Steps and signals leave the tables with their job: a sweep finds none.
_NOTHING_LEFT = Swept(0, 0, None)


class InMemoryStepRepo:
    """Steps and signals of the jobs in `jobs`."""

    def __init__(self, jobs: InMemoryJobRepo) -> None:
        self._jobs = jobs
        self._clock = jobs.clock

    async def store_steps(self, steps: Sequence[NewStep], bounds: StepBounds) -> list[bool | None]:
        self._jobs.answer("store_steps")
        return [self._store(step, bounds) for step in steps]

    def _store(self, step: NewStep, bounds: StepBounds) -> bool | None:
        if (job := self._jobs.held_by(step.claim)) is None:
            return None
        known = self._jobs.steps.get(job.id, [])
        stored_bytes = sum(len(row.name.encode()) + row.size for row in known if row.kind is StepKind.STEP)
        if (
            any(row.name == step.name for row in known)
            or len(known) >= bounds.steps
            or stored_bytes + step.size > bounds.bytes
        ):
            return False
        now = self._clock.now()
        row = Step(
            name=step.name,
            kind=StepKind.STEP,
            attempt=job.attempts,
            started_at=now - step.ran,
            stored_at=now,
            until=None,
            signal_id=None,
            value=step.value,
            size=len(step.value),
        )
        self._add(job, row)
        return True

    def _add(self, job: Job, row: Step) -> Job:
        """Add a step. The handler has started, so the attempt counts from here on."""
        rows = self._jobs.steps.setdefault(job.id, [])
        rows.append(row)
        return self._jobs.put(job, steps=len(rows), delivered=True)

    async def suspend_jobs(
        self, reports: Sequence[SuspendReport], bounds: StepBounds
    ) -> dict[Claim, tuple[Ended, bool]]:
        self._jobs.answer("suspend_jobs")
        suspended = {}
        for report in sorted(reports, key=lambda report: report.claim.job_id):
            if (job := self._jobs.held_by(report.claim)) is not None:
                suspended[report.claim] = self._suspend(job, report, bounds)
        self._jobs.settle()
        return suspended

    def _suspend(self, job: Job, report: SuspendReport, bounds: StepBounds) -> tuple[Ended, bool]:
        now = self._clock.now()
        known = self._find(job.id, report.step)
        ends = known is None and job.steps >= bounds.steps
        if known is None and not ends:
            known = _suspension(job, report, now)
            job = self._add(job, known)
        has_come = bool(report.signal) and self._next_signal(job.id, report.signal) is not None
        if job.history and job.history[-1].outcome is Outcome.SUSPENDED:
            job = replace(job, history=job.history[:-1])
        reason = f"waits for {report.signal.replace(_NEXT, ' or ')}" if report.signal else "sleeps"
        job = with_attempt(with_progress(job, report.progress, now), Outcome.SUSPENDED, reason, now)
        until = None if known is None else known.until
        job = replace(
            job,
            attempts=job.attempts - 1,
            suspensions=job.suspensions + 1,
            waits_for=None if ends else report.signal,
            next_run_at=now if has_come else until or WITHOUT_END,
            start_by=None,
            error_group="",
        )
        if ends:
            problem = too_many_steps(bounds.steps)
            job = replace(job, last_error=problem, error_group=error_group(problem))
            self._jobs.finish(job, JobStatus.DEAD_LETTERED, finished_by=job.locked_by)
            return self._jobs.ended(job, JobStatus.DEAD_LETTERED), False
        self._jobs.put(job, status=JobStatus.RETRYING, ready=has_come, locked_by=None, lease_until=None)
        return self._jobs.ended(job, JobStatus.RETRYING), has_come

    async def take_signal(self, claim: Claim, step: str, signal: str, bounds: StepBounds) -> Take | None:
        self._jobs.answer("take_signal")
        if (job := self._jobs.held_by(claim)) is None:
            return None
        known, now = self._find(job.id, step), self._clock.now()
        if known is not None and known.stored_at is not None:
            return Take(self._as_read(known))
        if known is None and job.steps >= bounds.steps:
            return Take(None, is_over=True)
        if (sent := self._next_signal(job.id, signal)) is not None:
            sent.is_taken = True
            taken = known or Step(step, StepKind.SIGNAL, job.attempts, now, None, None, None, None, 0)
            taken = taken._replace(
                attempt=job.attempts,
                stored_at=now,
                signal_id=sent.signal.id,
                value=sent.signal.value,
                size=len(sent.signal.value),
                signal=sent.signal.name,
            )
            self._replace(job, taken) if known else self._add(job, taken)
            return Take(self._as_read(taken))
        if known is not None and known.until is not None and known.until <= now:
            late = known._replace(attempt=job.attempts, stored_at=now)
            self._replace(job, late)
            return Take(self._as_read(late))
        return Take(None)

    async def find_step(self, job_id: str, name: str) -> Step | None:
        self._jobs.answer("find_step")
        row = self._find(job_id, name)
        return None if row is None or row.stored_at is None else self._as_read(row)

    async def list_steps(self, job_id: str) -> list[Step]:
        self._jobs.answer("list_steps")
        return self._jobs.steps_of(job_id) or []

    async def signal_job(self, signal: Signal, bounds: StepBounds) -> Sent | None:
        self._jobs.answer("signal_job")
        jobs = [job for job in self._jobs.existing([signal.job_id]) if job.status not in TERMINAL]
        if not jobs:
            return None
        (job,) = jobs
        sent = [kept for kept in self._jobs.signals.get(job.id, ()) if kept.is_counted]
        size = sum(kept.size for kept in sent) + KeptSignal(signal).size
        is_over = len(sent) >= bounds.steps
        is_stored = not is_over and size <= bounds.signal_bytes and not self._is_kept(signal.id)
        is_awaited = (
            job.status is JobStatus.RETRYING
            and not job.ready
            and job.waits_for is not None
            and signal.name in job.waits_for.split(_NEXT)
        )
        if is_stored:
            self._jobs.steps.setdefault(job.id, [])
            self._jobs.signals.setdefault(job.id, []).append(KeptSignal(signal))
            if is_awaited:
                self._jobs.put(job, ready=True, next_run_at=self._clock.now())
        return Sent(job.topic, is_stored, is_awaited, job.ready or is_awaited, is_over)

    async def knows_signal(self, signal: Signal) -> bool:
        self._jobs.answer("knows_signal")
        return any(kept.signal.id == signal.id for kept in self._jobs.signals.get(signal.job_id, ())) or any(
            step.signal_id == signal.id for step in self._jobs.steps.get(signal.job_id, ())
        )

    async def forget_steps(self, after: str, limit: int) -> Swept:
        return _NOTHING_LEFT

    async def forget_signals(self, after: str, limit: int) -> Swept:
        return _NOTHING_LEFT

    def _as_read(self, row: Step) -> Step:
        return as_read(row, self._clock.now())

    def _is_kept(self, signal_id: str) -> bool:
        return any(kept.signal.id == signal_id for sent in self._jobs.signals.values() for kept in sent)

    def _find(self, job_id: str, name: str) -> Step | None:
        return next((row for row in self._jobs.steps.get(job_id, ()) if row.name == name), None)

    def _replace(self, job: Job, changed: Step) -> None:
        rows = self._jobs.steps[job.id]
        rows[:] = [changed if row.name == changed.name else row for row in rows]

    def _next_signal(self, job_id: str, names: str) -> KeptSignal | None:
        """The oldest signal of the names, one name per line, that no step has taken."""
        waiting = (kept for kept in self._jobs.signals.get(job_id, ()) if not kept.is_taken)
        return next((kept for kept in waiting if kept.signal.name in names.split(_NEXT)), None)


def _suspension(job: Job, report: SuspendReport, now: datetime) -> Step:
    """The step of a sleep, or of a signal that has not come."""
    return Step(
        name=report.step,
        kind=StepKind.SIGNAL if report.signal else StepKind.SLEEP,
        attempt=job.attempts,
        started_at=now,
        stored_at=None if report.signal else now,
        until=None if report.delay is None else now + report.delay,
        signal_id=None,
        value=None,
        size=0,
    )
