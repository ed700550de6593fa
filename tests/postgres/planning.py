"""Schedules under test: the store, the services above it, and the few steps that most tests begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Job, JobFilter
from pulse_server.domain.schedules import CatchUp, Cron, Every, Fire, Fired, Once, Schedule, Timetable, Work
from pulse_server.domain.timetables import first_run
from pulse_server.postgres.database import Database
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.postgres.schedules import PostgresScheduleRepo
from pulse_server.service.schedule_definitions import Definition
from pulse_server.service.scheduler import Scheduler
from pulse_server.service.schedules import Schedules
from tests.fakes.replica import Replica
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
HOURLY = Every(HOUR)


class RecordingScheduleRepo(PostgresScheduleRepo):
    """Keeps what each statement fired."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.batches: list[list[Fired]] = []

    async def fire_schedules(self, fires: Sequence[Fire]) -> list[Fired]:
        done = await super().fire_schedules(fires)
        self.batches.append(done)
        return done


def work(topic: str = "mail", **changes: Any) -> Work:
    usual: dict[str, Any] = {"payload": b"{}", "priority": 0, "max_attempts": 5}
    return Work(topic, **(usual | changes))


def definition(
    name: str | None, timetable: Timetable = HOURLY, topic: str = "mail", **changes: Any
) -> Definition:
    return Definition(name, timetable, work(topic), **({"catch_up": CatchUp.ONE} | changes))


@dataclass
class Planning:
    repo: RecordingScheduleRepo
    connection: Connection
    replica: Replica = field(default_factory=Replica)

    def __post_init__(self) -> None:
        self.roster = self.replica.roster
        self.service = Schedules(self.repo, self.replica.publisher)
        self._jobs = PostgresJobRepo(self.repo.database)
        self.scheduler = Scheduler(self.repo, self.replica.publisher, interval=SECOND)

    async def now(self) -> datetime:
        return await self.repo.database_now()

    async def make(
        self,
        timetable: Timetable = HOURLY,
        *,
        overdue: timedelta | None = None,
        catch_up: CatchUp = CatchUp.ONE,
        topic: str = "mail",
        **changes: Any,
    ) -> Schedule:
        """Store a schedule; with `overdue` its cursor lies that far back."""
        now = await self.now()
        cursor = first_run(timetable, now) if overdue is None else now - overdue
        wanted = Schedule(
            new_id(),
            changes.pop("name", None),
            timetable,
            work(topic, **changes),
            catch_up,
            False,
            cursor,
        )
        created = await self.repo.create_schedule(wanted)
        assert created is not None
        return created

    async def make_once(self, *, overdue: timedelta = SECOND, **changes: Any) -> Schedule:
        at = await self.now() - overdue
        return await self.make(Once(at), overdue=None, **changes)

    async def make_unreadable(self, count: int = 1, overdue: timedelta = 2 * HOUR) -> list[str]:
        """Schedules whose expression was made invalid in the table."""
        spoilt = [await self.make(Cron("@hourly"), overdue=overdue, topic="spoilt") for _ in range(count)]
        ids = [schedule.id for schedule in spoilt]
        await self.connection.execute(
            "UPDATE pulse.schedules SET cron_expr = 'at tea time' WHERE id = ANY($1::uuid[])", ids
        )
        return ids

    async def jobs_of(self, schedule: Schedule) -> list[Job]:
        """The jobs that the schedule made, newest first."""
        return await self._jobs.list_jobs(JobFilter(schedule_id=schedule.id), limit=10)

    async def current(self, schedule: Schedule) -> Schedule:
        stored = await self.repo.get_schedule(schedule.id)
        assert stored is not None, f"schedule {schedule.id} is gone"
        return stored

    async def set_cursor(self, schedule: Schedule, cursor: datetime) -> None:
        await self.connection.execute(
            "UPDATE pulse.schedules SET next_run_at = $2 WHERE id = $1", schedule.id, cursor
        )

    async def job_ids(self, schedule: Schedule | None = None) -> set[str]:
        rows = await self.connection.fetch(
            "SELECT id FROM pulse.all_jobs WHERE $1::uuid IS NULL OR schedule_id = $1",
            schedule.id if schedule else None,
        )
        return {str(row["id"]) for row in rows}

    async def due_count(self) -> int:
        return int(
            await self.connection.fetchval(
                "SELECT count(*) FROM pulse.schedules WHERE NOT paused AND next_run_at <= now()"
            )
        )
