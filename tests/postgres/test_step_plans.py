"""The plans of statements about steps: a batch costs what its rows cost, and not their square."""

from __future__ import annotations

import asyncpg
import pytest

from pulse_server.domain.steps import NewStep
from pulse_server.postgres.database import HOT_PLANS
from tests.postgres.query_plans import Plan, explain
from tests.postgres.stepped import LIMITS, Stepped

JOBS, STEPS = 60, 5


@pytest.fixture
async def plans(stepped: Stepped, shared_dsn: str) -> dict[str, Plan]:
    claims = [await stepped.store.start() for _ in range(JOBS)]
    for number in range(STEPS):
        await stepped.steps.store_steps([NewStep(claim, f"part#{number}", b"x") for claim in claims], LIMITS)
    workers = {claim.worker_id for claim in claims}
    assert len(workers) == 1

    def column(value: str) -> str:
        return f"array_fill({value}, ARRAY[{JOBS}])"

    ids = "'{" + ",".join(sorted(claim.job_id for claim in claims)) + "}'"
    worker = f"'{workers.pop()}'::text"
    connection = await asyncpg.connect(shared_dsn, server_settings=HOT_PLANS)
    # A table that is as small as the batch is best read as a whole. Autovacuum may have counted its rows.
    tables = "('pulse.jobs'::regclass, 'pulse.job_steps'::regclass)"
    await connection.execute(
        f"UPDATE pg_class SET reltuples = 10000000, relpages = 100000 WHERE oid IN {tables}"
    )
    try:
        return {
            "complete_with_steps": await explain(
                *(connection, "complete_with_steps", ids, f"ARRAY[{worker}]", column("1"), column("1")),
                column("NULL::bytea"),
            ),
            "store_steps": await explain(
                *(connection, "store_steps", ids, column(worker), column("1"), column("'new'::text")),
                *(column("'x'::bytea"), column("interval '1 s'"), "1000", "1000000"),
            ),
            "list_steps_of_claimed": await explain(
                *(connection, "list_steps_of_claimed", ids, "65536", "1048576", "100"),
            ),
        }
    finally:
        await connection.close()


@pytest.mark.parametrize("statement", ["complete_with_steps", "store_steps", "list_steps_of_claimed"])
async def test_no_node_sees_the_square_of_a_batch(plans: dict[str, Plan], statement: str) -> None:
    plan = plans[statement]
    seen = max(
        round((node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"])
        for node in plan.nodes()
    )
    assert JOBS <= seen <= JOBS * STEPS, plan


async def test_steps_of_a_completed_job_are_read_once_and_deleted(plans: dict[str, Plan]) -> None:
    plan = plans["complete_with_steps"]
    assert plan.rows_touched("job_steps") == 2 * JOBS * STEPS, plan
