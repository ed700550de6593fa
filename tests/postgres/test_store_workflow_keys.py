"""Workflows whose canceled jobs had unique keys, and come back. ADR-0066, ADR-0077"""

from __future__ import annotations

import pytest

from pulse_server.jobs.new_jobs import Scope, Unique
from pulse_server.jobs.rules import JobStatus
from tests.fakes.store import a_job
from tests.postgres.workflow_stores import SubmittedWorkflow, WorkflowStore, node


async def canceled(workflows: WorkflowStore, scope: Scope, *, is_whole: bool = False) -> SubmittedWorkflow:
    """A workflow that canceled its second job, which has a unique key."""
    workflow = await workflows.submit(node("a"), node("b", "a", unique=Unique("k", scope)))
    if is_whole:
        await workflow.cancel_whole()
    else:
        await workflow.fail("a")
    await workflow.settle()
    return workflow


async def bring_back(*several: SubmittedWorkflow) -> None:
    for workflow in several:
        await workflow.retry_whole()
    await workflow.settle()


async def take_key(workflows: WorkflowStore, scope: Scope) -> str:
    job = a_job("email", unique=Unique("k", scope))
    await workflows.store.repo.insert_rich_jobs([job])
    return job.id


@pytest.mark.parametrize("is_whole", [False, True])
async def test_job_that_comes_back_leaves_the_key_of_waiting_jobs_to_another(
    workflows: WorkflowStore, is_whole: bool
) -> None:
    workflow = await canceled(workflows, Scope.WAITING, is_whole=is_whole)
    other = await take_key(workflows, Scope.WAITING)

    await bring_back(workflow)

    assert await workflow.states() == {"a": "ready", "b": "waiting"}
    assert (await workflows.store.job(workflow.ids["b"])).unique_scope is None
    assert (await workflows.store.job(other)).unique_scope == Scope.WAITING


@pytest.mark.parametrize("is_whole", [False, True])
async def test_job_whose_key_another_job_holds_for_its_life_stays_canceled(
    workflows: WorkflowStore, is_whole: bool
) -> None:
    workflow = await canceled(workflows, Scope.LIVE, is_whole=is_whole)
    other = await take_key(workflows, Scope.LIVE)

    await bring_back(workflow)

    assert await workflow.states() == {"a": "ready", "b": "canceled"}
    assert (await workflows.store.job(workflow.ids["b"])).last_error == "Another job holds its unique key."
    await workflows.store.repo.cancel_jobs([other], "", set(JobStatus))
    await workflow.complete("a")
    await workflow.settle()
    assert (await workflow.view()).status == "failed"
    assert await workflow.retry_whole() == {"b"}
    await workflow.settle()
    await workflow.complete("b")
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_two_workflows_that_come_back_do_not_share_a_key(workflows: WorkflowStore) -> None:
    first = await canceled(workflows, Scope.LIVE)
    second = await canceled(workflows, Scope.LIVE)

    await bring_back(first, second)

    states = [(await workflow.states())["b"] for workflow in (first, second)]
    assert sorted(states) == ["canceled", "waiting"]
