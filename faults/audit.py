"""Installs the triggers of audit.sql in a database, and reads what they wrote."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg

from faults.changes import (
    JobChange,
    JobState,
    LateWait,
    LimitEvent,
    OutcomeChange,
    ScheduleChange,
    SwitchChange,
    WorkflowChange,
)
from faults.history import History
from faults.workflows.tables import WorkflowTables, read_workflows

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_CLOCK_READINGS = 20


@dataclass(frozen=True)
class Audit:
    """Everything that the triggers wrote, and the present statuses of the jobs.

    Each list is ordered by seq, but `limits` by the commits.
    """

    jobs: list[JobChange]
    switches: list[SwitchChange] = field(default_factory=list)
    schedules: list[ScheduleChange] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)  # of the jobs that are there now
    limits: list[LimitEvent] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)  # of those of them that have one
    late_waits: list[LateWait] = field(default_factory=list)
    workflows: WorkflowTables = field(default_factory=WorkflowTables)
    outcomes: list[OutcomeChange] = field(default_factory=list)
    cancels: list[WorkflowChange] = field(default_factory=list)


async def install(connection: Connection) -> None:
    """Audit the database from now on. The schema has to be in place, without any job or schedule."""
    async with connection.transaction():
        for table in ("jobs", "completed_jobs", "schedules"):
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM pulse.{table})"):
                raise ValueError(f"pulse.{table} has rows already, and their history was not recorded.")
        for name in ("audit.sql", "audit_limits.sql"):
            await connection.execute(Path(__file__).with_name(name).read_text())


async def record_clock(connection: Connection, history: History) -> None:
    """Record the offset of the database's clock from ours: the tightest of a few readings.

    The database reads its clock between our sending and our receiving. Call it at the beginning of a run, at
    its end, and now and then in between.
    """
    best: tuple[int, int, int] | None = None
    for _ in range(_CLOCK_READINGS):
        sent = time.monotonic_ns()
        microseconds = await connection.fetchval(f"SELECT {_microseconds('clock_timestamp()')}")
        received = time.monotonic_ns()
        if best is None or received - sent < best[2] - best[1]:
            best = (microseconds * 1000, sent, received)
    assert best is not None
    history.write("clock", database_ns=best[0], sent_ns=best[1], received_ns=best[2])


async def read_audit(connection: Connection, *, is_clock_set: bool = False) -> Audit:
    """Return what was written so far, as of one moment.

    If the clock of the database was set meanwhile, the times of commits do not have their order: `limits` is
    ordered by seq. An end of a run may be drawn before a start and be committed later, so that is lenient.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        jobs = [_job_change(row) for row in await connection.fetch(_JOBS)]
        switches = [SwitchChange(*row.values()) for row in await connection.fetch(_SWITCHES)]
        schedules = [ScheduleChange(*row.values()) for row in await connection.fetch(_SCHEDULES)]
        statuses = {
            row["id"]: row["status"]
            for row in await connection.fetch("SELECT id::text, status FROM pulse.all_jobs")
        }
        results = {row["id"]: json.loads(row["result"]) for row in await connection.fetch(_RESULTS)}
        limits = [_limit_event(row) for row in await connection.fetch(_LIMITS)]
        if is_clock_set:
            limits.sort(key=lambda event: event.seq)
        late_waits = [LateWait(*row.values()) for row in await connection.fetch(_LATE_WAITS)]
        workflows = await read_workflows(connection)
        outcomes = [OutcomeChange(*row) for row in await connection.fetch(_OUTCOMES)]
        cancels = [WorkflowChange(*row) for row in await connection.fetch(_CANCELS)]
    return Audit(
        jobs, switches, schedules, statuses, limits, results, late_waits, workflows, outcomes, cancels
    )


def _microseconds(expression: str) -> str:
    # A double holds the microseconds of our time exactly, once rounded.
    return f"(date_part('epoch', {expression}) * 1000000)::bigint"


def _columns(*names: str) -> str:
    return ", ".join(
        _microseconds(name)
        if name in ("at", "moment", "queued_for") or name.endswith(("_at", "_until", "start_by"))
        else name
        for name in names
    )


_COMMON = ("seq", "txid", "at", "statement_at")
_SWITCHES = f"SELECT {_columns(*_COMMON, 'topic', 'paused')} FROM audit.switch_changes ORDER BY seq"
_SCHEDULES = f"""
SELECT {_columns(*_COMMON)}, id::text, {
    _columns("old_next_run_at", "old_paused", "new_next_run_at", "new_paused", "last_run_at", "is_edit")
}, {_columns("kind", "run_at", "interval_ms", "cron_expr", "time_zone", "catch_up", "overlap", "queued_for")}
FROM audit.schedule_changes ORDER BY seq
"""
_JOBS = f"""
SELECT {_columns(*_COMMON)}, id::text, topic, key, schedule_id::text, outcome,
       {_columns(*(f"{when}_{name}" for when in ("old", "new") for name in JobState._fields))}, unique_key,
       {_columns("submitted_at")}, {_microseconds("pg_xact_commit_timestamp(txid::text::xid8::xid)")}
FROM audit.job_changes ORDER BY seq
"""
_LATE_WAITS = f"SELECT {_columns(*_COMMON)}, job_id::text, attempt FROM audit.late_waits ORDER BY seq"
_OUTCOMES = f"""
SELECT {_columns("seq", "at", "statement_at")}, job_id::text, outcome FROM audit.outcomes ORDER BY seq
"""
_CANCELS = f"""
SELECT {_columns(*_COMMON)}, workflow_id::text, is_canceled FROM audit.workflow_changes ORDER BY seq
"""
_RESULTS = "SELECT id::text, result FROM pulse.all_jobs WHERE result IS NOT NULL"
_HEAD, _TAIL = len(_COMMON) + 5, 3
# A backend that sends its statistics in the middle of a transaction stamps the commit with that moment.
_COMMITTED = "GREATEST(pg_xact_commit_timestamp(xid), max(at) OVER (PARTITION BY xid::text))"
_LIMITS = f"""
SELECT {_microseconds(_COMMITTED)}, seq, {_columns("statement_at")}, what, name, lane, job_id::text,
       {_columns("moment")}, facts
FROM audit.limits ORDER BY {_COMMITTED}, seq
"""


def _job_change(row: Any) -> JobChange:
    values = tuple(row)
    middle = _HEAD + len(JobState._fields)
    old = None if values[_HEAD] is None else JobState._make(values[_HEAD:middle])
    new = None if values[middle] is None else JobState._make(values[middle:-_TAIL])
    return JobChange._make((*values[:_HEAD], old, new, *values[-_TAIL:]))


def _limit_event(row: Any) -> LimitEvent:
    *values, facts = row
    return LimitEvent._make((*values, None if facts is None else json.loads(facts)))
