"""The table itself refuses rows that no transition may make."""

from __future__ import annotations

import asyncpg
import pytest

from pulse_server.base.ids import new_id
from tests.postgres.sessions import Connection
from tests.rows import each_row

INSERT = """
INSERT INTO pulse.jobs
    (id, topic, payload, submitted_at, next_run_at, max_attempts, queued, status, locked_by, lease_until,
     finished_at, ended_as, attempts)
VALUES ($1, 'email', '', now(), now(), 5, {queued}, '{status}', {locked_by}, {lease_until}, {finished_at},
        {ended_as}, {attempts})
"""
FREE = {
    "queued": "false",
    "locked_by": "NULL",
    "lease_until": "NULL",
    "finished_at": "NULL",
    "attempts": "1",
    "ended_as": "NULL",
}
HELD = {**FREE, "queued": "true", "locked_by": "'A'", "lease_until": "now()"}
DONE = {**FREE, "finished_at": "now()"}
DEAD = {**DONE, "ended_as": "'DEAD_LETTERED'"}
CANCELED = {**DONE, "ended_as": "'CANCELED'"}


async def insert(connection: Connection, row: dict[str, str]) -> None:
    await connection.execute(INSERT.format(**row), new_id())


@each_row(
    "row",
    [
        {**FREE, "status": "PENDING", "queued": "true", "attempts": "0"},
        {**FREE, "status": "RETRYING"},
        {**FREE, "status": "RETRYING", "queued": "true"},
        {**HELD, "status": "RUNNING"},
        {**HELD, "status": "RUNNING", "attempts": "5"},
        {**DONE, "status": "COMPLETED"},
        {**DEAD, "status": "DEAD_LETTERED"},
        {**CANCELED, "status": "CANCELED"},
    ],
)
async def test_legal_row_is_stored(connection: Connection, row: dict[str, str]) -> None:
    await insert(connection, row)


@each_row(
    "row, constraint",
    [
        ({**FREE, "status": "RUNNING"}, "jobs_lease_means_running"),
        ({**HELD, "status": "RUNNING", "lease_until": "NULL"}, "jobs_lease_means_running"),
        ({**HELD, "status": "RUNNING", "locked_by": "NULL"}, "jobs_lease_means_running"),
        ({**HELD, "status": "PENDING"}, "jobs_lease_means_running"),
        ({**HELD, "status": "RETRYING"}, "jobs_lease_means_running"),
        ({**HELD, **DONE, "status": "COMPLETED", "locked_by": "'A'"}, "jobs_lease_means_running"),
        ({**FREE, "status": "PENDING", "lease_until": "now()"}, "jobs_lease_means_running"),
        ({**HELD, "status": "RUNNING", "queued": "false"}, "jobs_queued_means_unfinished"),
        ({**DONE, "status": "COMPLETED", "queued": "true"}, "jobs_queued_means_unfinished"),
        ({**CANCELED, "status": "CANCELED", "queued": "true"}, "jobs_queued_means_unfinished"),
        ({**DONE, "status": "DEAD_LETTERED"}, "jobs_ended_as_repeats_status"),
        ({**DEAD, "status": "COMPLETED"}, "jobs_ended_as_repeats_status"),
        ({**CANCELED, "status": "DEAD_LETTERED"}, "jobs_ended_as_repeats_status"),
        ({**FREE, "ended_as": "'CANCELED'", "status": "RETRYING"}, "jobs_ended_as_repeats_status"),
        ({**FREE, "status": "COMPLETED"}, "jobs_finished_means_terminal"),
        ({**FREE, "ended_as": "'DEAD_LETTERED'", "status": "DEAD_LETTERED"}, "jobs_finished_means_terminal"),
        ({**DONE, "status": "PENDING"}, "jobs_finished_means_terminal"),
        ({**FREE, "status": "RETRYING", "finished_at": "now()"}, "jobs_finished_means_terminal"),
        ({**FREE, "status": "PENDING", "attempts": "-1"}, "jobs_attempts_are_bounded"),
        ({**HELD, "status": "RUNNING", "attempts": "6"}, "jobs_attempts_are_bounded"),
        ({**FREE, "status": "SLEEPING"}, "jobs_status_is_known"),
        ({**FREE, "status": "pending"}, "jobs_status_is_known"),
    ],
)
async def test_illegal_row_is_refused_by_name(
    connection: Connection, row: dict[str, str], constraint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refusal:
        await insert(connection, row)
    assert refusal.value.constraint_name == constraint


async def test_key_cannot_be_used_twice_in_a_topic(connection: Connection) -> None:
    row = {**FREE, "status": "PENDING"}
    keyed = INSERT.replace("attempts)\nVALUES", "attempts, idempotency_key)\nVALUES").replace(
        "{attempts})", "{attempts}, 'k')"
    )
    await connection.execute(keyed.format(**row), new_id())

    with pytest.raises(asyncpg.UniqueViolationError) as refusal:
        await connection.execute(keyed.format(**row), new_id())
    assert refusal.value.constraint_name == "jobs_key"
