"""The port to the schedules table, with the one step that fires them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.schedules import Fire, Fired, Schedule, SchedulerStatus


class ScheduleRepo(Protocol):
    async def create_schedule(self, schedule: Schedule) -> Schedule | None:
        """Store the schedule. None if its name is taken."""
        ...

    async def get_schedule(self, schedule_id: str) -> Schedule | None: ...

    async def find_schedule(self, name: str) -> Schedule | None: ...

    async def list_schedules(self, *, limit: int, after: PageKey | None = None) -> list[Schedule]:
        """Oldest first."""
        ...

    async def due_schedules(self, limit: int) -> list[Schedule]:
        """What is due and not paused, longest due first."""
        ...

    async def fire_schedules(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert each occurrence's job and move its cursor, if it still stands there.

        Returns the steps that were taken; another scheduler may have been first.
        """
        ...

    async def queued_schedules(self, limit: int) -> list[Schedule]:
        """What has kept an occurrence that can fire now, and is not paused; longest kept first."""
        ...

    async def fire_queued(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert the job of each kept occurrence, unless a job of its schedule is unfinished by now."""
        ...

    async def fire_now(self, schedule_id: str, job_id: str) -> str | None:
        """Insert a job beside the cursor. Returns its topic; None if there is no such schedule, or the id is
        taken."""
        ...

    async def has_fired(self, schedule_id: str, job_id: str) -> bool:
        """Whether the job exists and comes from this schedule."""
        ...

    async def update_schedule(self, schedule: Schedule, as_read: Schedule) -> Schedule | None:
        """Store the new definition if neither the cursor nor the definition changed since it was read, else
        None."""
        ...

    async def pause_schedule(self, schedule_id: str) -> Schedule | None: ...

    async def resume_schedule(
        self, schedule_id: str, cursor: datetime, next_run_at: datetime
    ) -> Schedule | None:
        """Go on at `next_run_at` if the cursor still stands where it was read. None if it moved."""
        ...

    async def has_declared(self, application: str) -> bool:
        """Whether a schedule is marked as declared by the application, also if it has vanished since."""
        ...

    async def declare_schedules(
        self, application: str, names: Sequence[str], user: str | None, limit: int
    ) -> list[str]:
        """Mark the named schedules as declared by the application, and its others as vanished from its code.

        Returns the names of the others. With a user, schedules of other users are left alone.
        """
        ...

    async def delete_schedule(self, schedule_id: str) -> bool: ...

    async def scheduler_status(self) -> SchedulerStatus:
        """How many there are, and when the next one is due."""
        ...

    async def database_now(self) -> datetime: ...
