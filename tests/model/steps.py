"""What random walks expect of steps and signals. ADR-0069"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pulse_server.base.bounds import StepBounds, error_group
from pulse_server.jobs.reports import NewStep, SuspendReport
from pulse_server.jobs.rules import LIVE, Claim, Ended, Job, JobStatus, Outcome, Step, StepKind
from pulse_server.steps.rules import Sent, Signal, Take, too_many_steps
from tests.model.jobs import WITHOUT_END, JobModel


@dataclass(slots=True)
class KeptSignal:
    """A signal as stored. A step takes it once."""

    signal: Signal
    is_taken: bool = False
    is_counted: bool = True
    """Whether it counts towards the limits of its job. A fresh retry starts the count anew."""

    @property
    def size(self) -> int:
        return len(self.signal.name.encode()) + len(self.signal.value)


class StepModel(JobModel):
    """Jobs with steps. A job without steps and signals has no entry in `steps`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[Step]] = {}
        self.signals: dict[str, list[KeptSignal]] = {}

    async def store_steps(self, steps: Sequence[NewStep], bounds: StepBounds) -> list[bool | None]:
        return [self._store(step, bounds) for step in steps]

    def _store(self, step: NewStep, bounds: StepBounds) -> bool | None:
        if (job := self.held_by(step.claim)) is None:
            return None
        known = self.steps.get(job.id, [])
        stored_bytes = sum(len(row.name.encode()) + row.size for row in known if row.kind is StepKind.STEP)
        if (
            any(row.name == step.name for row in known)
            or len(known) >= bounds.steps
            or stored_bytes + step.size > bounds.bytes
        ):
            return False
        now = self.now()
        self._add(
            job,
            Step(step.name, StepKind.STEP, job.attempts, now, now, None, None, step.value, len(step.value)),
        )
        return True

    def _add(self, job: Job, row: Step) -> Job:
        """Add a step. The handler has started, so the attempt counts from here on."""
        rows = self.steps.setdefault(job.id, [])
        rows.append(row)
        return self.put(job, steps=len(rows), delivered=True)

    async def suspend_jobs(
        self, reports: Sequence[SuspendReport], bounds: StepBounds
    ) -> dict[Claim, tuple[Ended, bool]]:
        return {
            report.claim: self._suspend(job, report, bounds)
            for report in reports
            if (job := self.held_by(report.claim)) is not None
        }

    def _suspend(self, job: Job, report: SuspendReport, bounds: StepBounds) -> tuple[Ended, bool]:
        now = self.now()
        known = self._find(job.id, report.step)
        ends = known is None and job.steps >= bounds.steps
        if known is None and not ends:
            known = _suspension(job, report, now)
            job = self._add(job, known)
        has_come = bool(report.signal) and self._next_signal(job.id, report.signal) is not None
        reason = f"waits for {' or '.join(report.signal.splitlines())}" if report.signal else "sleeps"
        job = self.with_attempt(job, Outcome.SUSPENDED, reason)
        until = None if known is None else known.until
        job = replace(
            job,
            attempts=job.attempts - 1,
            suspensions=job.suspensions + 1,
            waits_for=None if ends else report.signal,
            next_run_at=now if has_come else until or WITHOUT_END,
            error_group="",
        )
        if ends:
            problem = too_many_steps(bounds.steps)
            job = replace(job, last_error=problem, error_group=error_group(problem))
            job = self.finish(job, JobStatus.DEAD_LETTERED, job.locked_by)
            return Ended(job.status, job.topic, 0.0), False
        job = self.put(job, status=JobStatus.RETRYING, ready=has_come, locked_by=None, lease_until=None)
        return Ended(job.status, job.topic, 0.0), has_come

    async def take_signal(self, claim: Claim, step: str, signal: str, bounds: StepBounds) -> Take | None:
        if (job := self.held_by(claim)) is None:
            return None
        known, now = self._find(job.id, step), self.now()
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
            if known is None:
                self._add(job, taken)
            else:
                self._replace(job, taken)
            return Take(self._as_read(taken))
        if known is not None and known.until is not None and known.until <= now:
            late = known._replace(attempt=job.attempts, stored_at=now)
            self._replace(job, late)
            return Take(self._as_read(late))
        return Take(None)

    async def find_step(self, job_id: str, name: str) -> Step | None:
        row = self._find(job_id, name)
        return None if row is None or row.stored_at is None else self._as_read(row)

    async def list_steps(self, job_id: str) -> list[Step]:
        return self.steps_of(job_id) or []

    async def signal_job(self, signal: Signal, bounds: StepBounds) -> Sent | None:
        job = self.jobs[signal.job_id]
        if job.status not in LIVE:
            return None
        sent = [kept for kept in self.signals.get(job.id, ()) if kept.is_counted]
        is_over = len(sent) >= bounds.steps
        size = sum(kept.size for kept in sent) + KeptSignal(signal).size
        is_stored = not is_over and size <= bounds.signal_bytes
        waits_for = job.waits_for if job.status is JobStatus.RETRYING and not job.ready else None
        is_awaited = signal.name in (waits_for or "").splitlines()
        if is_stored:
            self.steps.setdefault(job.id, [])
            self.signals.setdefault(job.id, []).append(KeptSignal(signal))
            if is_awaited:
                self.put(job, ready=True, next_run_at=self.now())
        return Sent(job.topic, is_stored, is_awaited, job.ready or is_awaited, is_over)

    def steps_of(self, job_id: str) -> list[Step] | None:
        rows = self.steps.get(job_id)
        is_over = self.jobs[job_id].status is JobStatus.COMPLETED
        return rows if rows is None or is_over else [self._as_read(row) for row in rows]

    def without_steps(self, job: Job) -> Job:
        """Forget the steps of the job and the signals that it took."""
        if job.id in self.steps:
            self.steps[job.id] = []
            left = [kept for kept in self.signals.get(job.id, ()) if not kept.is_taken]
            self.signals[job.id] = [replace(kept, is_counted=False) for kept in left]
        return self.put(job, steps=0)

    def finish(self, job: Job, status: JobStatus, finished_by: str | None = None) -> Job:
        if status is JobStatus.COMPLETED and job.id in self.steps:
            self.steps[job.id] = [
                row._replace(value=None, signal="", is_due=True) for row in self.steps[job.id]
            ]
            self.signals.pop(job.id, None)
        return super().finish(job, status, finished_by)

    def rows(self) -> tuple[int, int]:
        """How many steps with their values, and how many signals, are stored in all."""
        live = (rows for job_id, rows in self.steps.items() if not self._is_completed(job_id))
        return sum(map(len, live)), sum(map(len, self.signals.values()))

    def end_waits(self, past: datetime) -> None:
        for rows in self.steps.values():
            rows[:] = [row._replace(until=past) if row.until else row for row in rows]

    def _is_completed(self, job_id: str) -> bool:
        return self.jobs[job_id].status is JobStatus.COMPLETED

    def _as_read(self, row: Step) -> Step:
        return row._replace(is_due=row.until is not None and row.until <= self.now())

    def _find(self, job_id: str, name: str) -> Step | None:
        return next((row for row in self.steps.get(job_id, ()) if row.name == name), None)

    def _replace(self, job: Job, changed: Step) -> None:
        rows = self.steps[job.id]
        rows[:] = [changed if row.name == changed.name else row for row in rows]

    def _next_signal(self, job_id: str, names: str) -> KeptSignal | None:
        """The oldest signal of the names, one name per line, that no step has taken."""
        waiting = (kept for kept in self.signals.get(job_id, ()) if not kept.is_taken)
        return next((kept for kept in waiting if kept.signal.name in names.splitlines()), None)


def _suspension(job: Job, report: SuspendReport, now: datetime) -> Step:
    """The step of a sleep, or of a signal that has not come."""
    kind = StepKind.SIGNAL if report.signal else StepKind.SLEEP
    until = None if report.delay is None else now + report.delay
    return Step(report.step, kind, job.attempts, now, None if report.signal else now, until, None, None, 0)
