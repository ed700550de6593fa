"""Races of settlers and operators over a workflow. ADR-0077"""

from __future__ import annotations

from tests.postgres.flows import Flows, node
from tests.postgres.sessions import Connection, blocked


async def test_job_that_is_canceled_while_its_workflow_is_reopened_comes_back(
    flows: Flows, rival: Connection
) -> None:
    """A settler has read that the workflow is canceled, and has not committed yet."""
    flow = await flows.submit(node("a"), node("b", "a"))
    await flows.repo.cancel_workflow(flow.id)
    await flows.repo.leave_workflow(flow.id)
    await rival.fetch("SELECT * FROM pulse.settle_workflows_v1(10, 10, 10, 10)")
    reopening = await blocked(flows.connection, flows.repo.reopen_workflow(flow.id))
    await rival.execute("COMMIT")
    await reopening
    await flow.settle()
    assert await flow.states() == {"a": "ready", "b": "waiting"}
