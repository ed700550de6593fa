"""Races of settlers and operators over a workflow. ADR-0077"""

from __future__ import annotations

from tests.postgres.sessions import Connection, blocked
from tests.postgres.workflow_stores import StoredWorkflows, node


async def test_job_that_is_canceled_while_its_workflow_is_reopened_comes_back(
    stored_workflows: StoredWorkflows, rival: Connection
) -> None:
    """A settler has read that the workflow is canceled, and has not committed yet."""
    workflow = await stored_workflows.submit(node("a"), node("b", "a"))
    await stored_workflows.repo.cancel_workflow(workflow.id)
    await stored_workflows.repo.leave_workflow(workflow.id)
    await rival.fetch("SELECT * FROM pulse.settle_workflows_v1(10, 10, 10, 10)")
    reopening = await blocked(stored_workflows.connection, stored_workflows.repo.reopen_workflow(workflow.id))
    await rival.execute("COMMIT")
    await reopening
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting"}
