"""Settles and lists look up the edges of each job, whatever the statistics say. ADR-0077"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulse_server.postgres.database import HOT_PLANS
from tests.postgres.sessions import Connection
from tests.postgres.workflow_stores import StoredWorkflows, node

WIDE = 2000
# As settle_workflows_v1 and list_workflow_jobs look them up.
BY_PARENT = """
SELECT edge.child
FROM unnest($1::uuid[], $2::int[]) AS change (workflow_id, number)
JOIN pulse.workflow_edges AS edge ON edge.workflow_id = change.workflow_id AND edge.parent = change.number
"""
BY_CHILD = """
SELECT ARRAY(
    SELECT edge.parent FROM pulse.workflow_edges AS edge
    WHERE edge.workflow_id = node.workflow_id AND edge.child = node.number
)
FROM unnest($1::uuid[], $2::int[]) AS node (workflow_id, number)
"""


def scans(plan: Any) -> list[tuple[str, str]]:
    """The indexes of the plan, each with its condition."""
    own = [(plan["Index Name"], plan.get("Index Cond", ""))] if "Index Name" in plan else []
    return own + [found for part in plan.get("Plans", ()) for found in scans(part)]


async def plan_of(connection: Connection, query: str) -> list[tuple[str, str]]:
    async with connection.transaction():
        for name, value in HOT_PLANS.items():
            await connection.execute(f"SET LOCAL {name} = '{value}'")
        await connection.execute(f"PREPARE looked_up (uuid[], int[]) AS {query}")
        text = await connection.fetchval("EXPLAIN (FORMAT JSON) EXECUTE looked_up (NULL, NULL)")
        await connection.execute("DEALLOCATE looked_up")
    return scans(json.loads(text)[0]["Plan"])


@pytest.mark.parametrize(
    ("query", "index", "column"),
    [(BY_PARENT, "workflow_edges_pkey", "parent"), (BY_CHILD, "workflow_edges_child", "child")],
)
async def test_edges_are_looked_up_by_their_whole_key(
    stored_workflows: StoredWorkflows, query: str, index: str, column: str
) -> None:
    """Here all edges have one parent, or one child. Statistics would say that the column is of no use."""
    names = [f"job-{number}" for number in range(WIDE)]
    if column == "parent":
        await stored_workflows.submit(node("first"), *(node(name, "first") for name in names))
    else:
        await stored_workflows.submit(*(node(name) for name in names), node("last", *names))
    await stored_workflows.connection.execute("VACUUM ANALYZE pulse.workflow_edges")
    ((used, condition),) = await plan_of(stored_workflows.connection, query)
    assert used == index
    assert "workflow_id" in condition
    assert column in condition
