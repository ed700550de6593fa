"""Every column of a job is stored, read and kept, or stands here with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import pytest

from pulse_server.database import statements
from pulse_server.database import statements as database_statements
from pulse_server.database.connections import HOT_PLANS
from pulse_server.jobs.rules import Job
from tests.fakes.store import a_job
from tests.postgres.query_plans import explain, settle_on
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import TRANSITIONS
from tests.rows import each_row

# Of new_job_columns; a new job has the others from the defaults of the table.
DERIVED = {"submitted_at", "next_run_at", "start_by", "queued", "status"}
SET_LATER = {
    *("attempts", "run", "locked_by", "lease_until", "started_at", "delivered", "finished_at", "finished_by"),
    *("last_error", "history", "error_group", "ended_as", "snoozes", "crashes", "suspensions", "waits_for"),
    *("tier", "rank_at", "pool", "lane_held", "result", "progress"),
    *("steps", "step_bytes", "signals", "signal_bytes"),
    *("workflow_id", "held"),  # of store_workflow_v1
    "undo",
}
# A claim, a limit or a step needs them, and no reader; the last three are read when they are asked for.
NOT_READ = {
    *("queued", "ended_as", "tier", "rank_at", "pool", "lane_held", "undo"),
    *("step_bytes", "signals", "signal_bytes", "payload", "history", "result"),
}
SET_BY_THE_END = {"finished_by", "finished_at", "result", "timeline", "kept"}


async def columns_of(connection: Connection, table: str) -> set[str]:
    rows = await connection.fetch(
        "SELECT attname FROM pg_attribute "
        "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
        f"pulse.{table}",
    )
    return {row["attname"] for row in rows}


async def test_every_column_of_a_job_is_stored_or_set_later(connection: Connection) -> None:
    stored = {name for name, column in database_statements.NEW_JOB.items() if column.stored is not None}

    assert stored | DERIVED | SET_LATER == await columns_of(connection, "jobs")


async def test_every_column_of_a_job_is_read(connection: Connection) -> None:
    assert {*database_statements.READ, *NOT_READ} - {"ready"} == await columns_of(connection, "jobs")


def test_every_column_that_is_read_is_a_field_of_a_job() -> None:
    """job_from_row fills the fields by name."""
    assert {*database_statements.READ, "payload", "history", "result"} == {
        field.name for field in fields(Job)
    }


async def test_every_column_of_a_completed_job_is_kept(connection: Connection) -> None:
    assert {*database_statements.MOVED, *SET_BY_THE_END} == await columns_of(connection, "completed_jobs")


@each_row(
    "name",
    [
        *("insert_jobs", "insert_one", "insert_rich_jobs", "meet_rivals"),
        *("hand_over_jobs", "hand_over_one", "hand_over_limited"),
    ],
)
@each_row("column", database_statements.NEW_JOB)
def test_every_insert_takes_every_column(name: str, column: str) -> None:
    number = list(database_statements.NEW_JOB).index(column) + 1

    assert f"${number}::" in TRANSITIONS[name]


def pretend(monkeypatch: pytest.MonkeyPatch, section: str, text: str) -> Callable[[], dict[str, str]]:
    """Reads statements of a file that has this section."""
    monkeypatch.setattr(statements, "_sections", lambda file: {section: text} if file == "x.sql" else {})
    return partial(statements.statements.__wrapped__, "x.sql")


@pytest.mark.parametrize(
    ("section", "text"),
    [("used(topic)", "SELECT :topic, :lease"), ("used(topic, lease)", "SELECT :topic")],
    ids=["undeclared", "unused"],
)
def test_parameters_have_to_be_declared_and_used(
    section: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pretend(monkeypatch, section, text)

    with pytest.raises(ValueError, match=r"used declares other parameters than it uses: lease\."):
        read()


def test_casts_and_times_of_day_are_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT :topic::text[], job.id::int, '12:30'::time WHERE job.topic = :topic"
    monkeypatch.setattr(
        statements, "_sections", lambda file: {"used(topic)": text} if file == "x.sql" else {}
    )

    (sent,) = statements.statements.__wrapped__("x.sql").values()
    assert sent.endswith("SELECT $1::text[], job.id::int, '12:30'::time WHERE job.topic = $1")


async def test_throttled_jobs_are_not_compared_each_with_each(connection: Connection) -> None:
    """1,000 of them took 139 ms by a nested loop, which is all that our planner settings leave of a join."""
    await settle_on(connection, HOT_PLANS)
    given = {"id": f"'{{{a_job().id}}}'", "topic": "'{mail}'", "payload": "'{x}'", "max_attempts": "'{1}'"}
    arguments = [*(given.get(name, "NULL") for name in database_statements.NEW_JOB), "NULL", "'{1 h}'"]

    plan = await explain(connection, "insert_rich_jobs", *arguments)
    assert "hashed SubPlan" in str(plan)
