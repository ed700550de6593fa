"""The port to the schedules table, including the step that fires schedules."""

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

    async def list_schedules(
        self, *, limit: int, after: PageKey | None = None, topic: str = ""
    ) -> list[Schedule]:
        """Oldest first; of one topic, if it is named."""
        ...

    async def due_schedules(self, limit: int) -> list[Schedule]:
        """Due schedules that are not paused, longest due first."""
        ...

    async def fire_schedules(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert each occurrence's job and advance its cursor, if the cursor has not moved.

        Returns the fires that happened; another scheduler may have been first.
        """
        ...

    async def queued_schedules(self, limit: int) -> list[Schedule]:
        """Unpaused schedules with a kept occurrence that can fire now, longest kept first."""
        ...

    async def fire_queued(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert the job of each kept occurrence, unless its schedule has an unfinished job."""
        ...

    async def fire_now(self, schedule_id: str, job_id: str) -> str | None:
        """Insert a job without moving the cursor. Returns its topic; None if the schedule does not
        exist or the id is taken."""
        ...

    async def has_fired(self, schedule_id: str, job_id: str) -> bool:
        """Whether the job exists and comes from this schedule."""
        ...

    async def update_schedule(self, schedule: Schedule, as_read: Schedule) -> Schedule | None:
        """Store the new definition. None if the cursor or the definition changed since it was
        read."""
        ...

    async def pause_schedule(self, schedule_id: str) -> Schedule | None: ...

    async def resume_schedule(
        self, schedule_id: str, cursor: datetime, next_run_at: datetime
    ) -> Schedule | None:
        """Resume at `next_run_at`. None if the cursor moved since it was read."""
        ...

    async def has_declared(self, application: str) -> bool:
        """Whether any schedule is marked as declared by the application, vanished ones included."""
        ...

    async def declare_schedules(
        self, application: str, names: Sequence[str], user: str | None, limit: int
    ) -> list[str]:
        """Mark the named schedules as declared by the application, and its other ones as vanished.

        Returns the names of the vanished ones. With a user, schedules of other users stay
        unchanged.
        """
        ...

    async def delete_schedule(self, schedule_id: str) -> bool: ...

    async def scheduler_status(self) -> SchedulerStatus:
        """The number of schedules, and when the next one is due."""
        ...

    async def database_now(self) -> datetime: ...
