"""Schedules: create, change, pause, fire and list them.

Their fires are ordinary jobs, which the `Scheduler` makes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from pulse_server.base.errors import (
    AlreadyExists,
    InvalidArgument,
    PermissionDenied,
    PulseError,
    ScheduleExists,
    ScheduleNotFound,
    Unavailable,
)
from pulse_server.base.ids import Page, PageKey, new_id, page_of, text_weight
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import Fired
from pulse_server.schedules.rules import (
    ENTRIES,
    CatchUp,
    Cron,
    Every,
    Fire,
    Once,
    Overlap,
    Schedule,
    SchedulerStatus,
    Timetable,
    Work,
    another_kind,
    as_declared,
    check_timetable,
    declared_anew,
    fire_id,
    first_run,
    handed_back,
    next_run,
    plan,
    read_expression,
    set_by_operator,
    upcoming,
    without_prefix,
)
from pulse_server.schedules.store import PostgresScheduleRepo

NO_LIMIT = timedelta(0)


@dataclass(frozen=True, slots=True)
class Definition:
    """The schedule that a caller requests."""

    name: str | None
    timetable: Timetable
    work: Work
    catch_up: CatchUp
    refuse_past: bool = False
    overlap: Overlap = Overlap.ALLOW


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a caller requests; None: unchanged."""

    timetable: Timetable | None = None
    topic: str | None = None
    payload: bytes | None = None
    priority: int | None = None
    max_attempts: int | None = None
    metadata: dict[str, str] | None = None
    catch_up: CatchUp | None = None
    time_zone: str | None = None
    start_within: timedelta | None = None
    """NO_LIMIT removes it."""
    overlap: Overlap | None = None
    returned: Sequence[str] = ()
    """Entries that go back to what code declares."""


def is_same(existing: Schedule, wanted: Definition) -> bool:
    """True if the stored schedule has this definition. Attempts that the policy overrides do not
    count: a program without the handler, or a server with other settings, has other numbers."""
    work = existing.work
    if work.attempts_by_policy and wanted.work.attempts_by_policy:
        work = replace(
            work,
            max_attempts=wanted.work.max_attempts,
            max_attempts_is_default=wanted.work.max_attempts_is_default,
        )
    return (without_prefix(existing.timetable), work, existing.catch_up, existing.overlap) == (
        without_prefix(wanted.timetable),
        wanted.work,
        wanted.catch_up,
        wanted.overlap,
    )


def has_same_default(existing: Schedule, wanted: Definition) -> bool:
    """True if the handler of the caller has the attempts that the stored schedule has as its default."""
    return existing.work.default_attempts == wanted.work.default_attempts


def check_overlap(timetable: Timetable, overlap: Overlap) -> None:
    """Raise InvalidArgument for an overlap of a schedule that fires once."""
    if isinstance(timetable, Once) and overlap is not Overlap.ALLOW:
        raise InvalidArgument("overlap", "belongs to schedules that repeat: this one fires once.")


def set_entries(changes: Changes) -> set[str]:
    """Return the names of the entries that the changes set."""
    named = {name for name in ENTRIES if getattr(changes, name, None) is not None}
    match changes.timetable:
        case Once():
            named.add("at")
        case Every():
            named.add("every")
        case Cron(expression):
            named.add("cron")
            if read_expression(expression).zone is not None:
                named.add("time_zone")
    return named


def changed_work(work: Work, changes: Changes) -> Work:
    """Return the job that each fire inserts after the changes."""
    return Work(
        topic=work.topic if changes.topic is None else changes.topic,
        payload=work.payload if changes.payload is None else changes.payload,
        priority=work.priority if changes.priority is None else changes.priority,
        max_attempts=work.max_attempts if changes.max_attempts is None else changes.max_attempts,
        metadata=work.metadata if changes.metadata is None else changes.metadata,
        attempts_by_policy=changes.max_attempts is None and work.attempts_by_policy,
        max_attempts_is_default=changes.max_attempts is None and work.max_attempts_is_default,
        start_within=work.start_within if changes.start_within is None else changes.start_within or None,
    )


def changed_timetable(schedule: Schedule, changes: Changes) -> Timetable:
    """Return the new timetable, of the same kind. The time zone stays if none is given, unless the new
    expression has its own."""
    current = schedule.timetable
    wanted = current if changes.timetable is None else changes.timetable
    if type(wanted) is not type(current):
        raise another_kind(schedule)
    if isinstance(current, Cron) and isinstance(wanted, Cron):
        if (own := read_expression(wanted.expression).zone) is None:
            return Cron(wanted.expression, changes.time_zone or current.time_zone)
        if changes.timetable is None and changes.time_zone not in (None, "", own):
            raise InvalidArgument(
                "time_zone", "is named by the cron expression itself: change it there, in the expression."
            )
        return wanted
    if changes.time_zone:
        raise InvalidArgument("time_zone", "belongs to cron: moments and intervals need none.")
    return wanted


# The most schedules that one application may declare, and that an answer names as vanished.
MOST_DECLARED = 1000
# How often a change is tried again when the schedule fires in the middle of it.
SCHEDULE_CONTENTION = 5


@dataclass(frozen=True, slots=True)
class Declarer:
    """The caller that declares a schedule."""

    user: str | None = None
    """None: the server has no users."""
    may_replace_all: bool = True
    """False: only schedules that the same user declared."""

    def may_replace(self, schedule: Schedule) -> bool:
        return self.may_replace_all or schedule.declared_by in (None, self.user)

    def require_right_to(self, schedule: Schedule) -> None:
        """PermissionDenied unless this caller may replace the schedule by a declaration."""
        if self.may_replace(schedule):
            return
        raise PermissionDenied(
            f"The schedule {schedule.name!r} was declared by the user {schedule.declared_by!r}, and the "
            f"declaration of {self.user!r} differs, so it was left as it is. Declare it as that user, or "
            "under another name. An operator may replace it, or delete it so that it can be declared anew."
        )


ANYONE = Declarer()


class Schedules:
    def __init__(self, repo: PostgresScheduleRepo, publisher: Publisher) -> None:
        self._repo = repo
        self._publisher = publisher

    async def create(
        self, wanted: Definition, *, replace_existing: bool, declarer: Declarer = ANYONE
    ) -> Schedule:
        """Store the schedule.

        If the name is taken by a schedule with the same definition, that schedule is returned. If the
        definitions differ, ScheduleExists is raised. With `replace_existing` this is a declaration by code:
        the schedule is updated, but for the entries that operators have set. ADR-0086
        """
        now = await self._repo.database_now()
        timetable = check_timetable(wanted.timetable, now)
        check_overlap(timetable, wanted.overlap)
        if wanted.refuse_past and isinstance(timetable, Once) and timetable.at < now:
            raise InvalidArgument("at", "lies in the past, and the request is strict about that.")
        schedule = Schedule(
            id=new_id(),
            name=wanted.name,
            timetable=timetable,
            work=wanted.work,
            catch_up=wanted.catch_up,
            overlap=wanted.overlap,
            paused=False,
            next_run_at=first_run(timetable, now),
            declared_by=declarer.user,
            overrides={} if replace_existing else None,
        )
        created = await self._repo.create_schedule(schedule)
        if created is not None:
            return created
        assert wanted.name is not None, "only a name can be taken"
        existing = await self._repo.find_schedule(wanted.name)
        if existing is None:
            raise Unavailable("The schedule was removed while it was being declared. Try again.")
        if replace_existing:
            return await self._declare(existing, schedule, wanted, declarer)
        if is_same(existing, wanted) or is_same(as_declared(existing), wanted):
            return existing
        raise ScheduleExists(wanted.name, existing.id)

    async def _declare(
        self, current: Schedule, schedule: Schedule, wanted: Definition, declarer: Declarer
    ) -> Schedule:
        for _ in range(SCHEDULE_CONTENTION):
            declared = as_declared(current)
            if is_same(declared, wanted) and has_same_default(declared, wanted):
                if current.overrides is not None or not declarer.may_replace(current):
                    return current
                # An operator made it. From now on code declares it.
                changed = replace(current, overrides={})
            else:
                declarer.require_right_to(current)
                anew = replace(declared_anew(current, schedule), declared_by=declarer.user)
                changed = await self._moved(current, anew)
            if (updated := await self._repo.update_schedule(changed, current)) is not None:
                return updated
            current = await self.get(current.id)
        raise _contended(current.id)

    async def declare(self, application: str, names: Sequence[str], declarer: Declarer = ANYONE) -> list[str]:
        """Record the schedules that an application's code declares. Returns the vanished ones."""
        if not names and not await self._repo.has_declared(application):
            return []  # as nearly always: nothing is written, and no operator's connection opened
        user = None if declarer.may_replace_all else declarer.user
        return await self._repo.declare_schedules(application, names, user, MOST_DECLARED)

    async def get(self, schedule_id: str) -> Schedule:
        schedule = await self._repo.get_schedule(schedule_id)
        if schedule is None:
            raise ScheduleNotFound(schedule_id)
        return schedule

    async def find(self, name: str) -> Schedule:
        schedule = await self._repo.find_schedule(name)
        if schedule is None:
            raise ScheduleNotFound(repr(name))
        return schedule

    async def page(self, *, limit: int, token: str, topic: str = "") -> Page[Schedule]:
        """Return one page, oldest first; of one topic, if it is named."""
        return await page_of(
            lambda count, after: self._repo.list_schedules(limit=count, after=after, topic=topic),
            limit,
            token,
            key=lambda schedule: PageKey(_created(schedule), schedule.id),
            weight=lambda schedule: text_weight(schedule.work.metadata),
        )

    async def update(self, schedule_id: str, changes: Changes, user: str = "") -> Schedule:
        """Change the schedule. Only future occurrences are affected; a new timetable starts from now.

        If code declares the schedule, the entries that are set belong to operators then. ADR-0086
        """
        for _ in range(SCHEDULE_CONTENTION):
            current = await self.get(schedule_id)
            changed = await self._changed(current, changes, user)
            updated = await self._repo.update_schedule(changed, current)
            if updated is not None:
                return updated
        raise _contended(schedule_id)

    async def pause(self, schedule_id: str) -> Schedule:
        schedule = await self._repo.pause_schedule(schedule_id)
        if schedule is None:
            raise ScheduleNotFound(schedule_id)
        return schedule

    async def resume(self, schedule_id: str) -> Schedule:
        """Resume with the next occurrence. Occurrences missed while paused are skipped, but an
        overdue `once` fires now."""
        for _ in range(SCHEDULE_CONTENTION):
            current = await self.get(schedule_id)
            now = await self._repo.database_now()
            cursor = current.next_run_at
            if current.paused and cursor <= now:
                cursor = next_run(current.timetable, cursor, now) or cursor
            resumed = await self._repo.resume_schedule(schedule_id, current.next_run_at, cursor)
            if resumed is not None:
                return resumed
        raise _contended(schedule_id)

    async def delete(self, schedule_id: str) -> None:
        """Delete the schedule. Its jobs stay, and keep the id of the schedule."""
        if not await self._repo.delete_schedule(schedule_id):
            raise ScheduleNotFound(schedule_id)

    async def fire(self, schedule_id: str, job_id: str) -> str:
        """Create a job now, apart from the timetable, which stays as it is. Returns the id of the job."""
        topic = await self._repo.fire_now(schedule_id, job_id)
        if topic is not None:
            self._publisher.fired_by_hand(job_id, topic)
        elif not await self._repo.has_fired(schedule_id, job_id):
            await self.get(schedule_id)  # raises if there is no such schedule; else the id is another job's
            raise AlreadyExists(f"job_id {job_id}", job_id)
        return job_id

    async def preview(self, timetable: Timetable, count: int) -> list[datetime]:
        """Return when a schedule with this timetable would fire if it were created now."""
        now = await self._repo.database_now()
        # A day that comes every 28 years takes 10 ms to find, in which the event loop must serve others.
        return await asyncio.to_thread(_upcoming, timetable, now, count)

    async def status(self) -> SchedulerStatus:
        """Return how many schedules there are, and whether they fire in time."""
        return await self._repo.scheduler_status()

    async def _changed(self, current: Schedule, changes: Changes, user: str) -> Schedule:
        entries = set_entries(changes)
        if both := sorted(entries.intersection(changes.returned)):
            raise InvalidArgument("returned", f"names {both[0]!r}, which the request also sets.")
        before = handed_back(current, changes.returned)
        changed = replace(
            before,
            timetable=changed_timetable(before, changes),
            catch_up=changes.catch_up or before.catch_up,
            overlap=changes.overlap or before.overlap,
            work=changed_work(before.work, changes),
        )
        if current.overrides is not None:
            now = await self._repo.database_now()
            changed = set_by_operator(before, changed, entries, user, now)
        return await self._moved(current, changed)

    async def _moved(self, current: Schedule, changed: Schedule) -> Schedule:
        """Return the changed schedule with its cursor. A new timetable starts from now."""
        check_overlap(changed.timetable, changed.overlap)
        if changed.timetable == current.timetable:
            return changed
        now = await self._repo.database_now()
        return replace(changed, next_run_at=first_run(check_timetable(changed.timetable, now), now))


def _upcoming(timetable: Timetable, now: datetime, count: int) -> list[datetime]:
    check_timetable(timetable, now)
    return upcoming(timetable, first_run(timetable, now), count)


def _created(schedule: Schedule) -> datetime:
    assert schedule.created_at is not None, "it comes from the database"
    return schedule.created_at


def _contended(schedule_id: str) -> PulseError:
    return Unavailable(f"Schedule {schedule_id} kept changing while it was being changed. Try again.")


# A fire is late by up to this. An interval below it is followed at its own pace once its first fire was made.
SCHEDULE_INTERVAL = timedelta(seconds=1)
# Due schedules per statement; a backlog larger than that goes on at once.
SCHEDULE_BATCH = 100
# How long an occurrence of a full batch is left alone if it could not be fired: its schedule cannot be read,
# or another session has locked it. The others go on.
NOT_FIRED_REST = timedelta(seconds=2)

Occurrence: TypeAlias = tuple[str, datetime]
"""The id of a schedule, and the moment."""

log = logging.getLogger(__name__)


class Scheduler:
    """Plans a step for each due schedule; the database takes it. Any number of schedulers may run at once: a
    step is guarded by the cursor that it starts from, so a second scheduler changes nothing."""

    def __init__(self, repo: PostgresScheduleRepo, publisher: Publisher, *, interval: timedelta) -> None:
        self._repo = repo
        self._publisher = publisher
        # The occurrences that could not be fired, and when each is tried again.
        self._resting: dict[Occurrence, float] = {}
        self._interval = interval
        self._look_again_in: timedelta | None = None
        self.loop = Loop("scheduler", self.tick, interval)

    async def tick(self) -> timedelta | None:
        now_here = lease_clock()
        self._resting = {one: until for one, until in self._resting.items() if until > now_here}
        await self._fire_queued()
        limit = self._limit
        found = await self._repo.due_schedules(limit)
        due = [schedule for schedule in found if (schedule.id, schedule.next_run_at) not in self._resting]
        if not due:
            # This tick was slightly too early: look once more before the next interval.
            pause, self._look_again_in = self._look_again_in, None
            return pause
        is_full = len(found) == limit or len(due) > SCHEDULE_BATCH
        del due[SCHEDULE_BATCH:]
        now = await self._repo.database_now()
        fires = [fire for schedule in due if (fire := _plan(schedule, now))]
        done = await self._repo.fire_schedules(fires) if fires else []
        self._published(done, now)
        tried = [(schedule.id, schedule.next_run_at) for schedule in due]
        moved = self._moved(done, of=tried if is_full else ())
        following = [fire.next_run_at for fire in fires if (fire.schedule_id, fire.occurrence) in moved]
        # No spin: what did not move rests.
        pause = self._pause(following, now, is_full)
        self._look_again_in = pause or None
        return pause

    async def _fire_queued(self) -> None:
        """Fire the occurrences that waited for a job of their schedule to finish."""
        limit = self._limit
        found = await self._repo.queued_schedules(limit)
        kept = [(schedule.id, schedule.queued_for) for schedule in found if schedule.queued_for is not None]
        tried = [one for one in kept if one not in self._resting]
        if not tried:
            return
        is_full = len(found) == limit or len(tried) > SCHEDULE_BATCH
        del tried[SCHEDULE_BATCH:]
        now = await self._repo.database_now()
        fires = [Fire(one, occurrence, None, fire_id(one, occurrence)) for one, occurrence in tried]
        done = await self._repo.fire_queued(fires)
        self._published(done, now)
        self._moved(done, of=tried if is_full else ())

    @property
    def _limit(self) -> int:
        # More than the resting ones: a hundred of them, which are due longest, hide no other.
        return SCHEDULE_BATCH + len(self._resting)

    def _moved(self, done: Sequence[Fired], of: Iterable[Occurrence]) -> set[Occurrence]:
        """Return the occurrences that were fired or skipped. Leave the others of these alone for a while."""
        moved = {(fired.schedule_id, fired.occurrence) for fired in done}
        until = lease_clock() + NOT_FIRED_REST.total_seconds()
        self._resting |= {one: until for one in of if one not in moved}
        return moved

    def _published(self, done: Sequence[Fired], now: datetime) -> None:
        """Publish and log the steps that were taken."""
        self._publisher.fired(done, now)
        for fired in done:
            if fired.is_held:
                log.info(
                    "fire_held",
                    extra={"schedule_id": fired.schedule_id, "occurrence": fired.occurrence.isoformat()},
                )
            if fired.taken_id:
                log.warning(
                    "fire_id_taken",
                    extra={
                        "schedule_id": fired.schedule_id,
                        "taken_id": fired.taken_id,
                        "job_id": fired.job_id,
                    },
                )
            if fired.job_id:
                log.info(
                    "schedule_fired",
                    extra={
                        "schedule_id": fired.schedule_id,
                        "job_id": fired.job_id,
                        "topic": fired.topic,
                        "late_seconds": round((now - fired.occurrence).total_seconds(), 3),
                    },
                )

    def _pause(
        self, following: Sequence[datetime | None], now: datetime, is_full_batch: bool
    ) -> timedelta | None:
        """Return how long to sleep: not at all if more is due, less than a tick before a short interval."""
        soonest = min((moment for moment in following if moment is not None), default=None)
        if is_full_batch or (soonest is not None and soonest <= now):
            return timedelta(0)
        if soonest is None or soonest - now >= self._interval:
            return None
        return soonest - now


def _plan(schedule: Schedule, now: datetime) -> Fire | None:
    """Return the step to take. None: the schedule cannot be read, and must not stop others."""
    try:
        return plan(schedule, now)
    except Exception:
        log.exception("schedule_skipped", extra={"schedule_id": schedule.id, "topic": schedule.work.topic})
        return None
