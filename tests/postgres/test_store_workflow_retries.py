"""Workflows whose jobs are canceled by an operator, or come back. ADR-0077"""

from __future__ import annotations

from pulse_server.base.ids import new_id
from tests.postgres.workflow_stores import WorkflowStore, node


async def test_retried_parent_brings_back_the_jobs_that_were_canceled_because_of_it(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "b"))
    await workflow.fail("a")
    await workflow.settle()
    assert (await workflow.view()).status == "failed"
    await workflow.retry("a")
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    view = await workflow.view()
    assert (view.status, view.unfinished, view.finished_at) == ("running", 3, None)
    for name in "abc":
        await workflow.complete(name)
        await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_job_that_an_operator_canceled_stays_canceled_and_waits_again_when_retried(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "b"))
    await workflow.cancel("b")
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "canceled", "c": "canceled"}
    await workflow.retry("b")
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    await workflow.cancel("b")
    await workflow.complete("a")
    await workflow.settle()
    assert await workflow.states() == {"a": "succeeded", "b": "canceled", "c": "canceled"}
    await workflow.retry("b")
    await workflow.settle()
    assert await workflow.states() == {"a": "succeeded", "b": "ready", "c": "waiting"}


async def test_retried_job_is_canceled_again_while_its_parent_has_failed(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.fail("a")
    await workflow.settle()
    await workflow.retry("b")
    assert await workflows.store.repo.promote_due(10) is not None
    assert not (await workflows.store.job(workflow.ids["b"])).ready
    await workflow.settle()
    assert (await workflow.states())["b"] == "canceled"


async def test_waiting_job_of_a_canceled_workflow_is_not_retried(workflows: WorkflowStore) -> None:
    """A settler would cancel it again."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.cancel_whole()
    await workflow.settle()
    ids = list(workflow.ids.values())
    retried = await workflows.store.repo.retry_jobs(ids, 5)
    assert [job.id for job in retried] == [workflow.ids["a"]]
    assert await workflows.store.repo.canceled_workflows_of(ids) == {workflow.ids["b"]: workflow.id}
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "canceled"}
    await workflow.retry_whole()
    assert await workflows.store.repo.canceled_workflows_of(ids) == {}


async def test_dropped_job_that_is_not_needed_any_more_counts_as_skipped(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(
        node("a"), node("b"), node("oops", "b", when="failed"), node("c", "a", "oops")
    )
    await workflow.fail("a")
    await workflow.complete("b")
    await workflow.settle()
    assert (await workflow.states())["c"] == "canceled"
    await workflow.retry("a")
    await workflow.settle()
    assert (await workflow.states())["c"] == "skipped"
    await workflow.complete("a")
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_job_that_became_ready_stays_ready(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a", when="always"))
    await workflow.fail("a")
    await workflow.settle()
    await workflow.retry("a")
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "ready"}


async def test_canceled_workflow_lets_no_job_start(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a", when="always"), node("c", "b", when="always"))
    await workflow.start("a")
    assert await workflow.cancel_whole() == {"a"}
    await workflow.settle()
    assert await workflow.states() == dict.fromkeys("abc", "canceled")
    assert (await workflow.view()).status == "canceled"
    assert await workflow.cancel_whole() is None, "it has ended"


async def test_workflow_whose_job_came_back_is_canceled_before_it_is_settled(
    workflows: WorkflowStore,
) -> None:
    """finished_at is still set: an operator retries a job, and cancels the workflow at once."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.fail("a")
    await workflow.settle()
    await workflow.retry("a")
    assert await workflow.cancel_whole() == {"a"}
    await workflow.settle()
    view = await workflow.view()
    assert (view.status, view.unfinished, view.canceled) == ("canceled", 0, 2)


async def test_workflow_whose_last_job_completed_is_not_canceled_before_it_is_settled(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a"))
    await workflow.complete("a")
    assert await workflow.cancel_whole() is None
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_retried_workflow_runs_everything_but_completed_jobs(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))
    await workflow.complete("a")
    await workflow.settle()
    await workflow.fail("b")
    await workflow.start("c")
    assert await workflow.cancel_whole() == {"c"}
    workflow.claims.clear()
    await workflow.settle()
    assert await workflow.retry_whole() == {"b", "c"}
    await workflow.settle()
    assert await workflow.states() == {"a": "succeeded", "b": "ready", "c": "ready", "d": "waiting"}


async def test_reopened_workflow_starts_no_job_before_its_parents_have_come_back(
    workflows: WorkflowStore,
) -> None:
    always = [node(name, "b", when="always") for name in "cd"]
    workflow = await workflows.submit(node("a"), node("b", "a"), *always, node("e", "c"))
    await workflow.cancel_whole()
    await workflow.settle()
    assert (await workflow.view()).status == "canceled"
    await workflow.retry_whole()
    assert (await workflow.view()).status == "running"
    for _ in range(6):
        await workflows.settle(jobs=1)
    assert await workflow.states() == {"a": "ready", **dict.fromkeys("bcde", "waiting")}
    for name in "abcde":
        await workflow.complete(name)
        await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_undone_cancel_of_a_whole_workflow_starts_no_job_early(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a", when="failed"), node("c", "b", when="always"))
    action = new_id()
    await workflows.store.repo.cancel_jobs(list(workflow.ids.values()), "by mistake", action=action)
    await workflow.settle()
    assert (await workflow.view()).status == "failed"
    for name in "abc":  # as in batches, with a look by a settler in between
        await workflows.store.repo.undo_jobs([workflow.ids[name]], action)
        await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    assert (await workflow.view()).status == "running"


async def test_undone_retry_of_a_workflow_leaves_its_canceled_jobs_to_a_later_retry(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "b"))
    await workflow.fail("a")
    await workflow.settle()
    attempts = (await workflows.store.job(workflow.ids["b"])).max_attempts
    action = new_id()
    await workflows.store.repo.retry_jobs(list(workflow.ids.values()), 30, action=action)
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    undone = await workflows.store.repo.undo_jobs(list(workflow.ids.values()), action)
    await workflow.settle()
    assert len(undone) == 3
    assert await workflow.states() == {"a": "failed", "b": "canceled", "c": "canceled"}
    assert (await workflows.store.job(workflow.ids["b"])).max_attempts == attempts
    await workflow.retry("a")
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    for name in "abc":
        await workflow.complete(name)
        await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_undone_retry_of_a_parent_drops_the_jobs_that_wait_for_it_again(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.fail("a")
    await workflow.settle()
    action = new_id()
    await workflows.store.repo.retry_jobs([workflow.ids["a"]], 1, action=action)
    await workflow.settle()
    assert await workflow.states() == {"a": "ready", "b": "waiting"}
    await workflows.store.repo.undo_jobs([workflow.ids["a"]], action)
    await workflow.settle()
    assert await workflow.states() == {"a": "failed", "b": "canceled"}
    assert (await workflow.view()).status == "failed"
