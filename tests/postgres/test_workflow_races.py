"""Races of settlers and operators over a workflow. ADR-0077"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.postgres.sessions import Connection, blocked
from tests.postgres.workflow_stores import StoredWorkflows, node


async def test_job_that_is_canceled_while_its_workflow_is_reopened_comes_back(
    workflows: StoredWorkflows, rival: Connection
) -> None:
    """A settler has read that the workflow is canceled, and has not committed yet."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.cancel_whole()
    await rival.fetch("SELECT * FROM pulse.settle_workflows_v1(10, 10, 10, 10)")
    reopening = await blocked(workflows.connection, workflow.retry_whole())
    await rival.execute("COMMIT")
    await reopening
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting"}


async def test_no_job_of_a_workflow_is_claimed_once_its_cancel_is_committed(
    workflows: StoredWorkflows,
) -> None:
    """They were canceled batch by batch later: thousands of handlers started meanwhile."""
    workflow = await workflows.submit(*(node(name) for name in "abc"), node("d", "a"))
    running = await workflow.start("a")
    answer = await workflows.repo.cancel_workflow(workflow.id, "by hand")
    assert await workflows.store.claim() == []
    assert [entry.ended_claim for entry in answer.jobs if entry.ended_claim] == [running]
    assert {entry.job.id for entry in answer.jobs} == {workflow.ids[name] for name in "abc"}
    assert not answer.left


async def test_cancel_of_a_workflow_waits_for_no_session_that_has_locked_a_job(
    workflows: StoredWorkflows, rival: Connection
) -> None:
    workflow = await workflows.submit(node("a"), node("b"))
    await rival.fetch("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", workflow.ids["b"])
    answer = await workflows.repo.cancel_workflow(workflow.id, "by hand")
    assert [entry.job.id for entry in answer.jobs] == [workflow.ids["a"]]
    assert answer.left == [workflow.ids["b"]]


@pytest.fixture
async def refusing(connection: Connection) -> AsyncIterator[None]:
    """Makes the last step of a retry fail: no count of a job can be changed."""
    await connection.execute(REFUSING)
    yield
    await connection.execute("DROP FUNCTION pulse.refuse_count CASCADE")


REFUSING = """
CREATE FUNCTION pulse.refuse_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refused';
END $$;
CREATE TRIGGER refuses BEFORE UPDATE OF outcome ON pulse.workflow_jobs
FOR EACH ROW WHEN (OLD.outcome IS NOT NULL) EXECUTE FUNCTION pulse.refuse_count();
"""


@pytest.mark.usefixtures("refusing")
async def test_retry_of_a_workflow_that_fails_changes_nothing(workflows: StoredWorkflows) -> None:
    """Its ready jobs ran, the workflow stayed canceled, and the jobs that wait for them never started."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.cancel_whole()
    await workflow.settle()
    before = await workflow.view(), await workflow.nodes()
    with pytest.raises(asyncpg.RaiseError, match="refused"):
        await workflow.retry_whole()
    assert (await workflow.view(), await workflow.nodes()) == before
    assert await workflows.store.claim() == []
