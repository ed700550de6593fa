"""The table of schedules refuses rows that cannot be fired."""

from __future__ import annotations

import asyncpg
import pytest

from pulse_server.base.ids import new_id
from tests.postgres.sessions import Connection
from tests.rows import each_row

INSERT = """
INSERT INTO pulse.schedules
    (id, next_run_at, max_attempts, topic, payload, kind, run_at, interval_ms, cron_expr, catch_up, name)
VALUES ($1, now(), 5, 'mail', '', '{kind}', {run_at}, {interval_ms}, {cron_expr}, '{catch_up}', {name})
"""
NOTHING = {"run_at": "NULL", "interval_ms": "NULL", "cron_expr": "NULL", "catch_up": "one", "name": "NULL"}
ONCE = {**NOTHING, "kind": "once", "run_at": "now()"}
INTERVAL = {**NOTHING, "kind": "interval", "interval_ms": "1000"}
CRON = {**NOTHING, "kind": "cron", "cron_expr": "'@daily'"}


async def insert(connection: Connection, row: dict[str, str]) -> None:
    await connection.execute(INSERT.format(**row), new_id())


@each_row("row", [ONCE, INTERVAL, CRON])
async def test_legal_row_is_stored(connection: Connection, row: dict[str, str]) -> None:
    await insert(connection, row)


@each_row(
    "row, constraint",
    [
        ({**ONCE, "run_at": "NULL"}, "schedules_kind_has_its_one_spec"),
        ({**ONCE, "cron_expr": "'@daily'"}, "schedules_kind_has_its_one_spec"),
        ({**INTERVAL, "run_at": "now()"}, "schedules_kind_has_its_one_spec"),
        ({**INTERVAL, "kind": "cron"}, "schedules_kind_has_its_one_spec"),
        ({**CRON, "interval_ms": "1"}, "schedules_kind_has_its_one_spec"),
        ({**CRON, "kind": "yearly"}, "schedules_kind_has_its_one_spec"),
        ({**INTERVAL, "interval_ms": "0"}, "schedules_interval_is_positive"),
        ({**CRON, "catch_up": "some"}, "schedules_catch_up_is_known"),
    ],
)
async def test_row_that_makes_no_sense_is_refused(
    connection: Connection, row: dict[str, str], constraint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        await insert(connection, row)


async def test_name_is_taken_once_and_no_name_as_often_as_one_likes(connection: Connection) -> None:
    for _ in range(2):
        await insert(connection, CRON)
    await insert(connection, {**CRON, "name": "'reconcile'"})

    with pytest.raises(asyncpg.UniqueViolationError, match="schedules_name"):
        await insert(connection, {**INTERVAL, "name": "'reconcile'"})


async def test_jobs_do_not_hang_on_their_schedule(connection: Connection) -> None:
    """A foreign key would take the history away with the schedule, or keep the schedule for its sake."""
    keys = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid = 'pulse.jobs'::regclass"

    assert await connection.fetchval(keys) == 0
