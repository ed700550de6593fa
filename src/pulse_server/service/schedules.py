"""Schedules: create, change, pause, fire and list them. Their fires are ordinary jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

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
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.schedule_owners import as_declared, declared_anew, handed_back, set_by_operator
from pulse_server.domain.schedules import Once, Schedule, SchedulerStatus, Timetable
from pulse_server.domain.timetables import check_timetable, first_run, next_run, upcoming
from pulse_server.postgres.schedules import PostgresScheduleRepo
from pulse_server.service.schedule_definitions import (
    Changes,
    Definition,
    changed_timetable,
    changed_work,
    check_overlap,
    has_same_default,
    is_same,
    set_entries,
)

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
