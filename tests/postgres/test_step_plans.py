"""The plans of statements about steps: a batch costs what its rows cost, and not their square."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS
from pulse_server.jobs.reads import array_text, compact_claim_columns, in_lock_order
from pulse_server.jobs.reports import NewStep
from pulse_server.jobs.rules import Claim
from tests.postgres.query_plans import explain
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import TRANSITIONS
from tests.postgres.stepped import BOUNDS, StoredSteps

JOBS, STEPS = 60, 5
# A table that is as small as the batch is best read as a whole. Autovacuum may have counted its rows.
_LARGE = """
UPDATE pg_class SET reltuples = 10000000, relpages = 100000
WHERE oid IN ('pulse.jobs'::regclass, 'pulse.job_steps'::regclass)
"""
_WORK = """
SELECT seq_tup_read, idx_tup_fetch, n_tup_del FROM pg_stat_xact_user_tables WHERE relname = 'job_steps'
"""


@pytest.fixture
async def claims(stepped: StoredSteps) -> list[Claim]:
    """Of jobs that run, and have stored their steps."""
    claims = [await stepped.store.start() for _ in range(JOBS)]
    for number in range(STEPS):
        await stepped.steps.store_steps([NewStep(claim, f"part#{number}", b"x") for claim in claims], BOUNDS)
    return in_lock_order(claims)


@pytest.fixture
async def planner(shared_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(shared_dsn, server_settings=HOT_PLANS)
    await connection.execute(_LARGE)
    yield connection
    await connection.close()


@pytest.mark.parametrize("statement", ["store_steps", "list_steps_of_claimed"])
async def test_no_node_sees_the_square_of_a_batch(
    claims: list[Claim], planner: Connection, statement: str
) -> None:
    def column(value: str) -> str:
        return f"array_fill({value}, ARRAY[{JOBS}])"

    ids = "'{" + ",".join(claim.job_id for claim in claims) + "}'"
    arguments = {
        "store_steps": (
            *(ids, column(f"'{claims[0].worker_id}'::text"), column("1"), column("1"), column("'new'::text")),
            *(column("'x'::bytea"), column("interval '1 s'"), "1000", "1000000"),
        ),
        "list_steps_of_claimed": (ids, "65536", "1048576", "100"),
    }
    plan = await explain(planner, statement, *arguments[statement])
    seen = max(
        round((node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"])
        for node in plan.nodes()
    )
    assert JOBS <= seen <= JOBS * STEPS, plan


async def test_steps_of_completed_jobs_are_read_once_by_their_index_and_deleted(
    claims: list[Claim], planner: Connection
) -> None:
    """The functions that a completion calls do not stand in its plan."""
    ids, *others = compact_claim_columns(claims)
    async with planner.transaction():
        await planner.fetch(TRANSITIONS["complete_jobs"], array_text(ids), *others, None)
        work = await planner.fetchrow(_WORK)

    assert tuple(work or ()) == (0, 2 * JOBS * STEPS, JOBS * STEPS)
