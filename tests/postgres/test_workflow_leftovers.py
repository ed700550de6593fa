"""Jobs and notices that outlive their workflow. ADR-0077"""

from __future__ import annotations

from datetime import timedelta

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import JobStatus
from pulse_server.work.retention import ExpiredJobs
from tests.postgres.workflow_stores import StoredWorkflows, SubmittedWorkflow, node


async def delete(workflows: StoredWorkflows) -> None:
    """Delete ended workflows. Their unsuccessful jobs stay: topics may keep them for longer."""
    retention = ExpiredJobs(workflows.database)
    assert await retention.delete_workflows(dict.fromkeys(JobStatus, timedelta()), 10) == 1


async def with_a_skipped_job(workflows: StoredWorkflows) -> SubmittedWorkflow:
    workflow = await workflows.submit(node("a"), node("oops", "a", when="failed"))
    await workflow.complete("a")
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"
    return workflow


async def test_skipped_job_of_a_deleted_workflow_runs_once_it_is_retried(
    workflows: StoredWorkflows,
) -> None:
    """It has no parents any more: it would wait for ever."""
    workflow = await with_a_skipped_job(workflows)
    await delete(workflows)
    await workflow.retry("oops")
    assert (await workflows.store.job(workflow.ids["oops"])).ready
    (claim,) = await workflows.store.claim()
    assert claim.job_id == workflow.ids["oops"]
    await workflows.store.repo.complete_jobs([claim])
    assert not (await workflow.settle()).is_more


async def test_job_that_is_retried_while_its_workflow_is_deleted_runs(
    workflows: StoredWorkflows,
) -> None:
    workflow = await with_a_skipped_job(workflows)
    await workflow.retry("oops")
    await delete(workflows)
    assert (await workflows.store.job(workflow.ids["oops"])).ready


async def test_notice_of_a_deleted_workflow_does_not_keep_settlers_busy(
    workflows: StoredWorkflows,
) -> None:
    """A job ended at the moment of the delete."""
    await workflows.connection.execute(
        "INSERT INTO pulse.workflow_notices VALUES ($1, ARRAY[$2::uuid], 'CANCELED')", new_id(), new_id()
    )
    assert not (await workflows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)).is_more
    await with_a_skipped_job(workflows)
    await delete(workflows)
    assert await workflows.connection.fetchval("SELECT count(*) FROM pulse.workflow_notices") == 0
