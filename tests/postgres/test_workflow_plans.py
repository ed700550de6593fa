"""Each statement of workflows reads what its jobs cost, whatever the planner believes. ADR-0077

Counted, and not timed: the entries that Postgres reads of tables and indexes, those of functions included.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from tests.postgres.sessions import Connection
from tests.postgres.workflow_reads import (
    LOG_PLANS,
    STATES,
    WORKFLOW,
    definition,
    entries_read,
    logged_plan,
    rolled_back,
    rows_seen,
)

OTHER = "0190f3a2-7b1c-7000-9000-000000000002"
JOBS = 1500
FEW = 20
# A walk over the workflow for a few jobs is past it, and a walk for each job by far.
ENTRIES_EACH, ENTRIES = 60, 250

_ONE = f"SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = '{WORKFLOW}' AND number = "
_START_FIRST = f"""
UPDATE pulse.jobs
SET status = 'RUNNING', locked_by = 'w', lease_until = now() + interval '1 h', started_at = now(),
    attempts = 1, run = 1
WHERE id = ({_ONE} 1)
"""
_END = f"""
WITH ended AS (
    DELETE FROM pulse.jobs
    WHERE id = ANY(ARRAY(
        SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = '{WORKFLOW}' AND number BETWEEN %d AND %d))
    RETURNING *
),
moved AS (
    INSERT INTO pulse.completed_jobs
        (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, max_attempts, delivered,
         topic, payload)
    SELECT id, submitted_at, now(), now(), now(), priority, 1, max_attempts, true, topic, payload FROM ended
)
INSERT INTO pulse.workflow_notices SELECT '{WORKFLOW}', array_agg(id), 'COMPLETED' FROM ended
"""
_NOTICES = f"""
INSERT INTO pulse.workflow_notices
SELECT '{WORKFLOW}', array_agg(job_id), 'PENDING'
FROM (
    SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = '{WORKFLOW}' AND number > 1 LIMIT %d
) AS waiting
"""
_MARK = f"UPDATE pulse.workflows SET canceled_at = now() WHERE id = '{WORKFLOW}'"
_CANCEL = f"""
{_MARK};
UPDATE pulse.jobs SET status = 'CANCELED', ended_as = 'CANCELED', queued = false, finished_at = now()
WHERE workflow_id = '{WORKFLOW}';
UPDATE pulse.workflow_jobs SET dropped = 'dropped', outcome = 'canceled'
WHERE workflow_id = '{WORKFLOW}' AND number > 1;
DELETE FROM pulse.workflow_notices
"""
_REOPEN = f"UPDATE pulse.workflows SET canceled_at = NULL WHERE id = '{WORKFLOW}'"
_FINISH = f"""
UPDATE pulse.workflows
SET finished_at = now() - interval '1 h', unfinished = 0, succeeded = jobs
WHERE id = '{WORKFLOW}'
"""


class Case(NamedTuple):
    """A statement, how many jobs it is about, and what comes before it in the transaction."""

    name: str
    statement: str
    arguments: tuple[Any, ...]
    jobs: int = JOBS
    setup: str = ""
    reads: bool = False


def added(count: int, **more: Any) -> str:
    usual = {"topic": "email", "payload": "e30=", "max_attempts": 5, "before": ["last"]}
    return json.dumps([{"name": f"new-{number}", **usual, **more} for number in range(count)])


def _addition(name: str, count: int, **more: Any) -> Case:
    statement = (
        f"SELECT added FROM pulse.add_to_workflow_v1(({_ONE} 1), 'w', 1, 1, $1::text::jsonb, 100000, 1000000)"
    )
    return Case(name, statement, (added(count, **more),), count, _START_FIRST)


def _settle(name: str, jobs: int, setup: str) -> Case:
    return Case(name, "settle_workflows", (100, 1000, 50, 1000, None), jobs, setup)


def _list(name: str, jobs: int, child: str | None = None, names: list[str] | None = None) -> Case:
    statement = "list_workflow_jobs"
    return Case(name, statement, (WORKFLOW, child, names, False, 0, FEW, True), jobs, reads=True)


# Reads come first, and what changes the whole workflow last: entries of rolled back rows are counted too.
CASES = [
    Case("get", "get_workflow", (WORKFLOW,), 1, reads=True),
    _list("list a page", FEW),
    _list("list parents of a part", 1, child=f"({_ONE} 7)"),
    _list("list parents of the last", FEW, child=f"({_ONE} {JOBS})"),
    _list("list by name", 3, names=["part-3", "part-4", "none"]),
    _list("list parents by name", 3, child=f"({_ONE} {JOBS})", names=["part-3", "part-4", "first"]),
    Case("cancel", "cancel_workflow", (WORKFLOW,), 1),
    Case("noticed", "noticed_workflows", (100,), 1, _NOTICES % 1),
    Case("store again", "store_workflow", (WORKFLOW, "x", b"d", None, definition(FEW)), FEW),
    Case("store", "store_workflow", (OTHER, "x", b"d", None, definition(FEW)), FEW),
    _addition("add one", 1),
    _addition("add some", FEW),
    _addition("add some behind a root", FEW, after=["first"]),
    _settle("settle: some parts end", FEW, _END % (2, FEW + 1)),
    _settle("settle: some wait on", FEW, _NOTICES % FEW),
    _settle("settle: canceled", FEW, f"{_MARK};{_NOTICES % FEW}"),
    _settle("settle: all canceled", JOBS, f"{_MARK};{_NOTICES % JOBS}"),
    _settle("settle: the parent of all ends", JOBS, _END % (1, 1)),
    Case("leave", "leave_workflow", (WORKFLOW, 20_000), JOBS, _MARK),
    Case("recount", f"SELECT pulse.recount_workflow_v1('{WORKFLOW}')", ()),
    Case("unsuccessful", "unsuccessful_workflow_jobs", (WORKFLOW,), JOBS, _CANCEL),
    Case("retry", "retry_workflow", (WORKFLOW,), 1, _MARK),
    # It writes each row several times. Alone it reads 37 entries a job; beside 15 other tests it read 71.
    Case("bring back", "bring_back", (WORKFLOW,), 3 * JOBS, f"{_CANCEL};{_REOPEN}"),
    Case("delete", "delete_workflows", (timedelta(), timedelta(), 10), JOBS, _FINISH),
]


@pytest.mark.parametrize("state", STATES)
async def test_statement_reads_in_proportion_to_its_jobs(connection: Connection, state: str) -> None:
    await STATES[state](connection, JOBS)

    too_much = {}
    for case in CASES:
        arguments = [await _job(connection, one) for one in case.arguments]
        async with rolled_back(connection, reads=case.reads):
            if case.setup:
                await connection.execute(case.setup)
            seen = await entries_read(connection, case.statement, *arguments)
        if seen > ENTRIES_EACH * case.jobs + ENTRIES:
            too_much[case.name] = seen
    assert not too_much


async def _job(connection: Connection, argument: Any) -> Any:
    """The argument. A query is replaced by the job that it finds."""
    is_query = isinstance(argument, str) and argument.startswith("(SELECT")
    return await connection.fetchval(argument) if is_query else argument


async def test_addition_compares_no_new_job_with_all_others(connection: Connection) -> None:
    """In memory, where no entries are counted: no node of a plan sees the square of the jobs."""
    many = 200
    case = _addition("add many behind a root", many, after=["first"])
    await STATES["fresh"](connection, FEW)
    plans: list[Any] = []
    connection.add_log_listener(lambda _, message: plans.extend(logged_plan(message.message)))
    async with rolled_back(connection):
        await connection.execute(case.setup)
        await connection.execute(LOG_PLANS)
        await connection.fetch(case.statement, *case.arguments)
    seen = max(rows_seen(plan) for plan in plans)
    assert many <= seen <= 10 * many
