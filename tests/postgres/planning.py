"""Schedules under test: the store, the services above it, and the few steps that most tests begin with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pulse_server.base.ids import new_id
from pulse_server.database.connections import Database
from pulse_server.jobs.reports import Fired
from pulse_server.jobs.rules import LIVE, Job, JobFilter
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.schedules.rules import (
    CatchUp,
    Cron,
    Every,
    Fire,
    Once,
    Overlap,
    Schedule,
    Timetable,
    Work,
    first_run,
)
from pulse_server.schedules.service import Definition, Scheduler, Schedules
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.topics.store import PostgresTopicSettings
from tests.fakes.replica import Replica
from tests.fakes.store import LEASE, room, token
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
HOURLY = Every(HOUR)


class RecordingScheduleRepo(PostgresScheduleRepo):
    """`batches` has what each statement fired."""

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


class Planning:
    """Schedules, and what their fires make."""

    def __init__(self, repo: RecordingScheduleRepo, connection: Connection) -> None:
        self.repo = repo
        self.jobs = PostgresJobRepo(repo.database)
        self.settings = PostgresTopicSettings(repo.database)
        self.connection = connection
        self.replica = Replica()
        self.roster = self.replica.roster
        self.service = Schedules(repo, self.replica.publisher)
        self.scheduler = Scheduler(repo, self.replica.publisher, interval=SECOND)

    async def now(self) -> datetime:
        return await self.repo.database_now()

    async def make(
        self,
        timetable: Timetable = HOURLY,
        *,
        overdue: timedelta | None = None,
        catch_up: CatchUp = CatchUp.ONE,
        topic: str = "mail",
        overlap: Overlap = Overlap.ALLOW,
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
            overlap=overlap,
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
        for schedule in spoilt:
            await self.spoil(schedule, Cron("at tea time"))
        return [schedule.id for schedule in spoilt]

    async def jobs_of(self, schedule: Schedule) -> list[Job]:
        """The jobs that the schedule made, newest first."""
        return await self.jobs.list_jobs(JobFilter(schedule_id=schedule.id), limit=10)

    async def current(self, schedule: Schedule) -> Schedule:
        stored = await self.repo.get_schedule(schedule.id)
        assert stored is not None, f"schedule {schedule.id} is gone"
        return stored

    async def payload_of(self, job: Job) -> bytes:
        stored = await self.jobs.get_job(job.id)
        assert stored is not None
        return stored.payload

    async def complete_all(self, topic: str = "mail") -> None:
        claimed = await self.jobs.claim_batch([topic], room("A", 10), LEASE)
        assert len(await self.jobs.complete_jobs([token(job) for job in claimed])) == len(claimed) > 0

    async def live_jobs(self) -> int:
        return await self.jobs.count_matching_jobs(JobFilter(statuses=frozenset(LIVE)))

    async def job_ids(self, schedule: Schedule | None = None) -> set[str]:
        wanted = JobFilter(schedule_id=schedule.id if schedule else None)
        return {job.id for job in await self.jobs.list_jobs(wanted, limit=10_000)}

    async def due_count(self) -> int:
        return len(await self.repo.due_schedules(10_000))

    async def set_cursor(self, schedule: Schedule, cursor: datetime) -> None:
        await self.connection.execute(
            "UPDATE pulse.schedules SET next_run_at = $2 WHERE id = $1", schedule.id, cursor
        )

    async def spoil(self, schedule: Schedule, timetable: Cron) -> None:
        """Write a timetable that cannot be read."""
        await self.connection.execute(
            "UPDATE pulse.schedules SET cron_expr = $2, time_zone = $3 WHERE id = $1",
            schedule.id,
            timetable.expression,
            timetable.time_zone,
        )
