"""A running job adds jobs to its workflow: fenced, once by name, and before jobs that wait. ADR-0077"""

from __future__ import annotations

import asyncio

from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import Unique
from pulse_server.jobs.rules import Claim
from tests.postgres.workflow_stores import BOUNDS, SubmittedWorkflow, WorkflowStore, node


async def test_added_job_is_waited_for(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("fetch"), node("collect", "fetch"))
    await workflow.start("fetch")
    added = await workflow.add("fetch", node("page", before=["collect"]))
    assert (added.problem, added.added) == (None, 1)
    await workflow.settle()
    await workflow.complete("fetch")
    await workflow.settle()
    assert await workflow.states() == {"fetch": "succeeded", "collect": "waiting", "page": "ready"}
    await workflow.complete("page")
    await workflow.settle()
    assert (await workflow.states())["collect"] == "ready"
    view = await workflow.view()
    assert (view.jobs, view.unfinished) == (3, 1)


async def test_repeated_addition_adds_nothing(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("fetch"), node("collect", "fetch"))
    await workflow.start("fetch")
    first = await workflow.add("fetch", node("page", before=["collect"]))
    again = await workflow.add("fetch", node("page", before=["collect"]), node("other", before=["collect"]))
    assert again.added == 1
    assert again.job_ids[0] == first.job_ids[0]
    await workflow.settle()
    assert (await workflow.view()).jobs == 4


async def test_added_job_waits_for_the_jobs_in_after_however_they_stand(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b"), node("adds"))
    await workflow.complete("a")
    await workflow.settle()
    await workflow.start("adds")
    added = await workflow.add("adds", node("x", "a"), node("y", "b"), node("z", "x", "adds"), node("root"))
    assert added.added == 4
    await workflow.settle()
    states = await workflow.states()
    assert {name: states[name] for name in ("x", "y", "z", "root")} == {
        "x": "ready",
        "y": "waiting",
        "z": "waiting",
        "root": "ready",
    }


async def test_addition_after_a_failed_job_is_canceled(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("adds"))
    await workflow.fail("a")
    await workflow.settle()
    await workflow.start("adds")
    await workflow.add("adds", node("x", "a"), node("oops", "a", when="failed"))
    await workflow.settle()
    states = await workflow.states()
    assert (states["x"], states["oops"]) == ("canceled", "ready")


async def test_lost_claim_adds_nothing(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    claim = await workflow.start("a")
    for stale in (claim._replace(worker_id="other"), claim._replace(attempt=7), claim._replace(run=7)):
        addition = await workflows.repo.add_to_workflow(stale, [node("x", before=["b"])], BOUNDS)
        assert addition.problem == "lost"
    await workflow.complete("a")
    assert (await workflows.repo.add_to_workflow(claim, [node("x")], BOUNDS)).problem == "lost"
    assert (await workflow.view()).jobs == 2


async def test_additions_that_cannot_be_are_refused_with_names(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "b"), node("done"))
    await workflow.complete("done")
    await workflow.settle()
    await workflow.start("a")
    for new, problem, names in [
        (node("x", "nothing"), "unknown", ["nothing"]),
        (node("x", before=["nothing"]), "unknown", ["nothing"]),
        (node("x", before=["done"]), "late", ["done"]),
        (node("x", before=["a"]), "late", ["a"]),
        (node("x", "c", before=["b"]), "cycle", ["c"]),
        (node("x", "b", before=["b"]), "cycle", ["b"]),
    ]:
        addition = await workflow.add("a", new)
        assert (addition.problem, list(addition.names)) == (problem, names)
    many = [node(f"x-{number}") for number in range(97)]
    assert (await workflow.add("a", *many)).problem == "many"
    assert (await workflow.add("a", *many[:96])).added == 96


async def test_job_without_a_workflow_starts_one(workflows: WorkflowStore) -> None:
    claim: Claim = await workflows.store.start()
    addition = await workflows.repo.add_to_workflow(claim, [node("x"), node("y", "email")], BOUNDS)
    assert addition.workflow_id is not None
    ids = {"email": claim.job_id, **dict(zip("xy", addition.job_ids, strict=True))}
    workflow = SubmittedWorkflow(workflows, addition.workflow_id, ids)
    await workflow.settle()
    assert await workflow.states() == {"email": "ready", "x": "ready", "y": "waiting"}
    again = await workflows.repo.add_to_workflow(claim, [node("z", before=["y"])], BOUNDS)
    assert again.workflow_id == workflow.id
    workflow.ids["z"] = again.job_ids[0]
    await workflows.store.repo.complete_jobs([claim])
    await workflow.settle()
    await workflow.complete("x", "z")
    await workflow.settle()
    await workflow.complete("y")
    await workflow.settle()
    view = await workflow.view()
    assert (view.name, view.status, view.jobs) == ("email", "succeeded", 4)


async def test_refused_addition_starts_no_workflow(workflows: WorkflowStore) -> None:
    claim: Claim = await workflows.store.start()
    refused = await workflows.repo.add_to_workflow(claim, [node("x", before=["nothing"])], BOUNDS)
    assert refused.problem == "unknown"
    assert await workflows.count() == (0, 1)
    assert (await workflows.store.job(claim.job_id)).workflow_id is None
    assert await workflows.repo.find_workflow_job(claim.job_id) is None
    assert (await workflows.repo.add_to_workflow(claim, [node("x", "email")], BOUNDS)).added == 1
    await workflows.store.repo.complete_jobs([claim])
    assert (await workflows.settle()).ready == 1


async def test_two_additions_at_once_start_one_workflow(workflows: WorkflowStore) -> None:
    claim: Claim = await workflows.store.start()
    both = [workflows.repo.add_to_workflow(claim, [node(name)], BOUNDS) for name in "xy"]
    answers = await asyncio.gather(*both)
    assert len({answer.workflow_id for answer in answers}) == 1
    assert await workflows.count() == (1, 3)


async def test_lost_claim_starts_no_workflow(workflows: WorkflowStore) -> None:
    claim: Claim = await workflows.store.start()
    stale = claim._replace(run=7)
    assert (await workflows.repo.add_to_workflow(stale, [node("x")], BOUNDS)).problem == "lost"
    assert await workflows.count() == (0, 1)


async def test_canceled_workflow_takes_no_job(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"))
    await workflow.start("a")
    await workflow.cancel_whole()
    assert (await workflow.add("a", node("x"))).problem == "canceled"


async def test_added_job_has_the_schedule_of_the_running_job(workflows: WorkflowStore) -> None:
    schedule_id = new_id()
    claim: Claim = await workflows.store.start(schedule_id=schedule_id)
    added = await workflows.repo.add_to_workflow(claim, [node("x", "email")], BOUNDS)
    assert (await workflows.store.job(added.job_ids[0])).schedule_id == schedule_id


async def test_key_of_a_waiting_job_is_free_for_an_addition_once_that_job_has_started(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(node("a", unique=Unique("customer-7")))
    await workflow.start("a")
    assert (await workflow.add("a", node("x", unique=Unique("customer-7")))).problem is None
    refused = await workflow.add("a", node("y", unique=Unique("customer-7")))
    assert (refused.problem, list(refused.names)) == ("taken", ["y"])
