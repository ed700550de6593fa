"""The schedules table. Each method sends the SQL section of the same name."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, metadata_to_json, statements
from pulse_server.jobs.leases import finished_since
from pulse_server.jobs.reads import metadata_from_json
from pulse_server.jobs.reports import Fired
from pulse_server.schedules.rules import (
    Attempts,
    CatchUp,
    Cron,
    Every,
    Fire,
    Once,
    Overlap,
    Override,
    Schedule,
    SchedulerStatus,
    Timetable,
    Work,
)

_SQL = statements("schedules/store.sql", "schedules/transitions.sql")
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
_ANY_ID = str(UUID(int=0))


class PostgresScheduleRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_schedule(self, schedule: Schedule) -> Schedule | None:
        """Store the schedule. None if its name is taken."""
        run_at, interval_ms, cron, zone = _spec_columns(schedule.timetable)
        return _first(
            await self._ask(
                "create_schedule",
                schedule.id,
                schedule.name,
                schedule.kind,
                run_at,
                interval_ms,
                cron,
                zone,
                schedule.catch_up.value,
                *_work_columns(schedule.work),
                schedule.next_run_at,
                schedule.declared_by,
                schedule.overlap.value,
                _overrides_to_json(schedule.overrides),
            )
        )

    async def get_schedule(self, schedule_id: str) -> Schedule | None:
        return _first(await self._ask("get_schedule", schedule_id))

    async def find_schedule(self, name: str) -> Schedule | None:
        return _first(await self._ask("find_schedule", name))

    async def list_schedules(
        self, *, limit: int, after: PageKey | None = None, topic: str = ""
    ) -> list[Schedule]:
        """Oldest first; of one topic, if it is named."""
        moment, last_id = (after.moment, after.id) if after else (None, _ANY_ID)
        return [_schedule(row) for row in await self._ask("list_schedules", moment, last_id, limit, topic)]

    async def due_schedules(self, limit: int) -> list[Schedule]:
        """Due schedules that are not paused, longest due first."""
        return [_schedule(row) for row in await self._fetch("due_schedules", limit)]

    async def fire_schedules(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert each occurrence's job and advance its cursor, if the cursor has not moved.

        Returns the fires that happened; another scheduler may have been first.
        """
        rows = await self._fetch(
            "fire_schedules",
            [fire.schedule_id for fire in fires],
            [fire.occurrence for fire in fires],
            [fire.next_run_at for fire in fires],
            [fire.job_id for fire in fires],
        )
        return [_fired(row) for row in rows]

    async def queued_schedules(self, limit: int) -> list[Schedule]:
        """Unpaused schedules with a kept occurrence that can fire now, longest kept first."""
        return [_schedule(row) for row in await self._fetch("queued_schedules", limit)]

    async def fire_queued(self, fires: Sequence[Fire]) -> list[Fired]:
        """Insert the job of each kept occurrence, unless its schedule has an unfinished job."""
        rows = await self._fetch(
            "fire_queued",
            [fire.schedule_id for fire in fires],
            [fire.occurrence for fire in fires],
            [fire.job_id for fire in fires],
        )
        return [_fired(row) for row in rows]

    async def fire_now(self, schedule_id: str, job_id: str) -> str | None:
        """Insert a job without moving the cursor. Returns its topic; None if the schedule does not
        exist or the id is taken."""
        rows = await self._ask("fire_now", schedule_id, job_id, finished_since([job_id]))
        return rows[0]["topic"] if rows else None

    async def has_fired(self, schedule_id: str, job_id: str) -> bool:
        """Whether the job exists and comes from this schedule."""
        return bool(await self._ask("has_fired", schedule_id, job_id))

    async def update_schedule(self, schedule: Schedule, as_read: Schedule) -> Schedule | None:
        """Store the new definition. None if the cursor or the definition changed since it was
        read."""
        return _first(
            await self._change(
                "update_schedule",
                schedule.id,
                as_read.next_run_at,
                as_read.updated_at,
                *_spec_columns(schedule.timetable),
                schedule.catch_up.value,
                *_work_columns(schedule.work),
                schedule.next_run_at,
                schedule.declared_by,
                schedule.overlap.value,
                _overrides_to_json(schedule.overrides),
            )
        )

    async def pause_schedule(self, schedule_id: str) -> Schedule | None:
        return _first(await self._change("pause_schedule", schedule_id))

    async def resume_schedule(
        self, schedule_id: str, cursor: datetime, next_run_at: datetime
    ) -> Schedule | None:
        """Resume at `next_run_at`. None if the cursor moved since it was read."""
        return _first(await self._change("resume_schedule", schedule_id, cursor, next_run_at))

    async def has_declared(self, application: str) -> bool:
        """Whether any schedule is marked as declared by the application, vanished ones included."""
        # Not as an operator: each worker asks this at its start, and would open a connection for
        # it.
        return bool(await self._fetch("has_declared", application))

    async def declare_schedules(
        self, application: str, names: Sequence[str], user: str | None, limit: int
    ) -> list[str]:
        """Mark the named schedules as declared by the application, and its other ones as vanished.

        Returns the names of the vanished ones. With a user, schedules of other users stay
        unchanged.
        """
        rows = await self._ask("declare_schedules", application, list(names), user, limit)
        return [row["name"] for row in rows]

    async def delete_schedule(self, schedule_id: str) -> bool:
        return bool(await self._change("delete_schedule", schedule_id))

    async def scheduler_status(self) -> SchedulerStatus:
        """The number of schedules, and when the next one is due."""
        (row,) = await self._ask("scheduler_status")
        return SchedulerStatus(*row)

    async def database_now(self) -> datetime:
        rows = await self._fetch("database_now")
        return rows[0]["now"]  # type: ignore[no-any-return]

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.hot.fetch(name, _SQL[name], *args)

    async def _ask(self, name: str, *args: object) -> Rows:
        return await self._database.operators.fetch(name, _SQL[name], *args)

    async def _change(self, name: str, schedule_id: str, *args: object) -> Rows:
        return await self._database.operators.fetch_hastily(name, _SQL[name], schedule_id, *args)


def _spec_columns(timetable: Timetable) -> tuple[datetime | None, int | None, str | None, str]:
    """run_at, interval_ms, cron_expr, time_zone: one of the first three is set."""
    match timetable:
        case Once(at):
            return at, None, None, "UTC"
        case Every(interval):
            return None, interval // _MILLISECOND, None, "UTC"
        case Cron(expression, time_zone):
            return None, None, expression, time_zone


def _work_columns(work: Work) -> tuple[str, bytes, int, int, str | None, bool, bool, timedelta | None]:
    return (
        work.topic,
        work.payload,
        work.priority,
        work.max_attempts,
        metadata_to_json(work.metadata),
        work.attempts_by_policy,
        work.max_attempts_is_default,
        work.start_within,
    )


def _fired(row: asyncpg.Record) -> Fired:
    return Fired(
        schedule_id=str(row["schedule_id"]),
        topic=row["topic"],
        occurrence=row["occurrence"],
        job_id=str(row["job_id"]) if row["is_new"] else None,
        taken_id=str(row["taken_id"]) if row["taken_id"] else None,
        is_held=row["is_held"],
    )


def _first(rows: Rows) -> Schedule | None:
    return _schedule(rows[0]) if rows else None


def _schedule(row: asyncpg.Record) -> Schedule:
    return Schedule(
        id=str(row["id"]),
        name=row["name"],
        timetable=_timetable(row),
        work=Work(
            topic=row["topic"],
            payload=row["payload"],
            priority=row["priority"],
            max_attempts=row["max_attempts"],
            metadata=metadata_from_json(row["metadata"]) or {},
            attempts_by_policy=row["attempts_by_policy"],
            # A server of the previous release may have stored the schedule's own number beside the
            # mark.
            max_attempts_is_default=row["attempts_by_policy"] and row["max_attempts_is_default"],
            start_within=row["start_within"],
        ),
        catch_up=CatchUp(row["catch_up"]),
        overlap=Overlap(row["overlap"]),
        queued_for=row["queued_for"],
        paused=row["paused"],
        next_run_at=row["next_run_at"],
        last_run_at=row["last_run_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        declared_by=row["declared_by"],
        application=row["application"],
        vanished_at=row["vanished_at"],
        overrides=_overrides_from_json(row["overrides"]),
    )


def _overrides_to_json(overrides: Mapping[str, Override] | None) -> str | None:
    if overrides is None:
        return None
    return json.dumps(
        {
            entry: {"declared": _to_json(each.declared), "by": each.set_by, "at": each.set_at.isoformat()}
            for entry, each in overrides.items()
        }
    )


def _overrides_from_json(text: str | None) -> dict[str, Override] | None:
    if text is None:
        return None
    return {
        entry: Override(
            _from_json(entry, each.get("declared")), each["by"], datetime.fromisoformat(each["at"])
        )
        for entry, each in json.loads(text).items()
    }


def _to_json(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value // _MICROSECOND
        case bytes():
            return base64.b64encode(value).decode()
        case Attempts():
            return value._asdict()
        case Mapping():
            return dict(value)
    return value


def _from_json(entry: str, value: Any) -> Any:
    match entry:
        case "at":
            return datetime.fromisoformat(value)
        case "every" | "start_within":
            return None if value is None else value * _MICROSECOND
        case "payload":  # lists leave it out
            return base64.b64decode(value or "")
        case "max_attempts":
            return Attempts(**value)
        case "catch_up":
            return CatchUp(value)
        case "overlap":
            return Overlap(value)
    return value


def _timetable(row: asyncpg.Record) -> Timetable:
    match row["kind"]:
        case "once":
            return Once(row["run_at"])
        case "interval":
            return Every(row["interval_ms"] * _MILLISECOND)
        case _:
            return Cron(row["cron_expr"], row["time_zone"])
