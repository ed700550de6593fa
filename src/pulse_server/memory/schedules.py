"""The port to schedules, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from pulse_server.domain.jobs import Job, PageKey
from pulse_server.domain.schedules import Fire, Fired, Overlap, Schedule, SchedulerStatus
from pulse_server.domain.status import JobStatus
from pulse_server.memory.jobs import InMemoryJobRepo


class InMemoryScheduleRepo:
    """Schedules, which fire into `jobs`."""

    def __init__(self, jobs: InMemoryJobRepo) -> None:
        self._jobs = jobs
        self._clock = jobs.clock
        self._rows = jobs.schedules

    async def create_schedule(self, schedule: Schedule) -> Schedule | None:
        self._jobs.answer("create_schedule")
        if schedule.id in self._rows or (schedule.name is not None and self._named(schedule.name)):
            return None
        now = self._clock.now()
        return self._put(schedule, paused=False, created_at=now, updated_at=now)

    async def get_schedule(self, schedule_id: str) -> Schedule | None:
        self._jobs.answer("get_schedule")
        return self._rows.get(schedule_id)

    async def find_schedule(self, name: str) -> Schedule | None:
        self._jobs.answer("find_schedule")
        return self._named(name)

    async def list_schedules(
        self, *, limit: int, after: PageKey | None = None, topic: str = ""
    ) -> list[Schedule]:
        self._jobs.answer("list_schedules")
        found = [(_made_at(row), row.id, row) for row in self._rows.values()]
        found.sort(key=lambda entry: entry[:2])
        return [
            _without_payload(row)
            for moment, row_id, row in found
            if (after is None or (moment, row_id) > (after.moment, after.id))
            and topic in ("", row.work.topic)
        ][:limit]

    async def due_schedules(self, limit: int) -> list[Schedule]:
        self._jobs.answer("due_schedules")
        now = self._clock.now()
        due = [row for row in self._rows.values() if not row.paused and row.next_run_at <= now]
        due.sort(key=lambda row: row.next_run_at)
        return [_without_payload(row) for row in due[:limit]]

    async def fire_schedules(self, fires: Sequence[Fire]) -> list[Fired]:
        self._jobs.answer("fire_schedules")
        done = []
        for fire in sorted(fires, key=lambda fire: fire.schedule_id):
            row = self._rows.get(fire.schedule_id)
            if row is not None and not row.paused and row.next_run_at == fire.occurrence:
                done.append(self._step(row, fire))
        return done

    def _step(self, row: Schedule, fire: Fire) -> Fired:
        """Fire the occurrence, unless a job of the schedule is in the way, and move the cursor."""
        is_held = (
            row.overlap is not Overlap.ALLOW
            and fire.next_run_at is not None
            and fire.job_id is not None
            and not self._is_own(row, fire.job_id)
            and self._is_busy(row)
        )
        fired = Fired(row.id, row.work.topic, fire.occurrence, None, is_held=is_held)
        if fire.job_id is not None and not is_held:
            fired = self._fire(row, fire.occurrence, fire.job_id)
        if fire.next_run_at is None:
            del self._rows[row.id]
            return fired
        keeps = is_held and row.overlap is Overlap.QUEUE
        self._put(
            row,
            next_run_at=fire.next_run_at,
            last_run_at=row.last_run_at if fire.job_id is None or is_held else fire.occurrence,
            queued_for=row.queued_for or fire.occurrence if keeps else row.queued_for,
        )
        return fired

    async def queued_schedules(self, limit: int) -> list[Schedule]:
        self._jobs.answer("queued_schedules")
        kept = [
            (row.queued_for, row)
            for row in self._rows.values()
            if row.queued_for is not None and not row.paused and not self._is_busy(row)
        ]
        kept.sort(key=lambda entry: entry[0])
        return [_without_payload(row) for _, row in kept[:limit]]

    async def fire_queued(self, fires: Sequence[Fire]) -> list[Fired]:
        self._jobs.answer("fire_queued")
        done = []
        for fire in sorted(fires, key=lambda fire: fire.schedule_id):
            row = self._rows.get(fire.schedule_id)
            if row is None or row.paused or row.queued_for != fire.occurrence or self._is_busy(row):
                continue
            assert fire.job_id is not None, "a kept occurrence has a job"
            done.append(self._fire(row, fire.occurrence, fire.job_id))
            last = max(row.last_run_at or fire.occurrence, fire.occurrence)
            self._put(row, queued_for=None, last_run_at=last)
        return done

    async def fire_now(self, schedule_id: str, job_id: str) -> str | None:
        self._jobs.answer("fire_now")
        row = self._rows.get(schedule_id)
        if row is None or job_id in self._jobs.jobs:
            return None
        self._insert(row, job_id, self._clock.now())
        return row.work.topic

    async def has_fired(self, schedule_id: str, job_id: str) -> bool:
        self._jobs.answer("has_fired")
        job = self._jobs.jobs.get(job_id)
        return job is not None and job.schedule_id == schedule_id

    async def update_schedule(self, schedule: Schedule, as_read: Schedule) -> Schedule | None:
        self._jobs.answer("update_schedule")
        row = self._rows.get(schedule.id)
        if row is None or (row.next_run_at, row.updated_at) != (as_read.next_run_at, as_read.updated_at):
            return None
        return self._put(
            row,
            timetable=schedule.timetable,
            catch_up=schedule.catch_up,
            work=schedule.work,
            next_run_at=schedule.next_run_at,
            declared_by=schedule.declared_by,
            overlap=schedule.overlap,
            overrides=schedule.overrides,
            queued_for=row.queued_for if schedule.overlap is Overlap.QUEUE else None,
            updated_at=self._clock.now(),
        )

    async def pause_schedule(self, schedule_id: str) -> Schedule | None:
        self._jobs.answer("pause_schedule")
        row = self._rows.get(schedule_id)
        return None if row is None else self._put(row, paused=True, updated_at=self._clock.now())

    async def resume_schedule(
        self, schedule_id: str, cursor: datetime, next_run_at: datetime
    ) -> Schedule | None:
        self._jobs.answer("resume_schedule")
        row = self._rows.get(schedule_id)
        if row is None or row.next_run_at != cursor:
            return None
        return self._put(row, paused=False, next_run_at=next_run_at, updated_at=self._clock.now())

    async def has_declared(self, application: str) -> bool:
        self._jobs.answer("has_declared")
        return any(row.application == application for row in self._rows.values())

    async def declare_schedules(
        self, application: str, names: Sequence[str], user: str | None, limit: int
    ) -> list[str]:
        self._jobs.answer("declare_schedules")
        mine = [row for row in self._rows.values() if user is None or row.declared_by in (None, user)]
        for row in mine:
            is_declared = row.name in names
            if not is_declared and row.application != application:
                continue
            if row.application != application or (row.vanished_at is None) != is_declared:
                vanished_at = None if is_declared else self._clock.now()
                self._put(row, application=application, vanished_at=vanished_at)
        stored = [self._rows[row.id] for row in mine]
        gone = [row.name for row in stored if row.application == application and row.name not in names]
        return sorted(name for name in gone if name is not None)[:limit]

    async def delete_schedule(self, schedule_id: str) -> bool:
        self._jobs.answer("delete_schedule")
        return self._rows.pop(schedule_id, None) is not None

    async def scheduler_status(self) -> SchedulerStatus:
        self._jobs.answer("scheduler_status")
        active = [row.next_run_at for row in self._rows.values() if not row.paused]
        first = min(active, default=None)
        late = timedelta(0) if first is None else max(timedelta(0), self._clock.now() - first)
        return SchedulerStatus(len(active), len(self._rows) - len(active), first, late)

    async def database_now(self) -> datetime:
        return await self._jobs.database_now()

    def _fire(self, row: Schedule, occurrence: datetime, job_id: str) -> Fired:
        """Insert the job of the occurrence, unless it exists. Another job's id is not taken from it."""
        if self._is_own(row, job_id):
            return Fired(row.id, row.work.topic, occurrence, None)
        is_taken = job_id in self._jobs.jobs
        made = self._insert(row, str(uuid4()) if is_taken else job_id, occurrence)
        return Fired(row.id, row.work.topic, occurrence, made, job_id if is_taken else None)

    def _insert(self, row: Schedule, job_id: str, occurrence: datetime) -> str:
        work, now = row.work, self._clock.now()
        self._jobs.jobs[job_id] = Job(
            id=job_id,
            topic=work.topic,
            status=JobStatus.PENDING,
            priority=work.priority,
            attempts=0,
            max_attempts=self._attempts(row),
            submitted_at=now,
            next_run_at=now,
            payload=work.payload,
            ready=True,
            schedule_id=row.id,
            metadata=dict(work.metadata),
            start_by=None if work.start_within is None else occurrence + work.start_within,
        )
        return job_id

    def _attempts(self, row: Schedule) -> int:
        """The schedule's own number, or the one in the topic's policy, or the stored default."""
        policy = self._jobs.policy(row.work.topic)
        by_policy = policy.run.over(policy.declared).max_attempts if row.work.attempts_by_policy else None
        return row.work.max_attempts if by_policy is None else by_policy

    def _is_own(self, row: Schedule, job_id: str) -> bool:
        job = self._jobs.jobs.get(job_id)
        return job is not None and job.schedule_id == row.id

    def _is_busy(self, row: Schedule) -> bool:
        return any(job.schedule_id == row.id and job.finished_at is None for job in self._jobs.jobs.values())

    def _named(self, name: str) -> Schedule | None:
        return next((row for row in self._rows.values() if row.name == name), None)

    def _put(self, row: Schedule, **changes: object) -> Schedule:
        self._rows[row.id] = changed = replace(row, **changes)  # type: ignore[arg-type]
        return changed


def _made_at(row: Schedule) -> datetime:
    assert row.created_at is not None, "every stored schedule has it"
    return row.created_at


def _without_payload(row: Schedule) -> Schedule:
    return replace(row, work=replace(row.work, payload=b""))
