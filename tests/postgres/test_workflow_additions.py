"""A running job adds jobs to its workflow: fenced, once by name, and before jobs that wait. ADR-0077"""

from __future__ import annotations

import asyncio

from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim
from tests.postgres.flows import LIMITS, Flow, Flows, node


async def test_added_job_is_waited_for(flows: Flows) -> None:
    flow = await flows.submit(node("fetch"), node("collect", "fetch"))
    await flow.start("fetch")
    added = await flow.add("fetch", node("page", before=["collect"]))
    assert (added.problem, added.added) == (None, 1)
    await flow.settle()
    await flow.complete("fetch")
    await flow.settle()
    assert await flow.states() == {"fetch": "succeeded", "collect": "waiting", "page": "ready"}
    await flow.complete("page")
    await flow.settle()
    assert (await flow.states())["collect"] == "ready"
    view = await flow.view()
    assert (view.jobs, view.unfinished) == (3, 1)


async def test_repeated_addition_adds_nothing(flows: Flows) -> None:
    flow = await flows.submit(node("fetch"), node("collect", "fetch"))
    await flow.start("fetch")
    first = await flow.add("fetch", node("page", before=["collect"]))
    again = await flow.add("fetch", node("page", before=["collect"]), node("other", before=["collect"]))
    assert again.added == 1
    assert again.job_ids[0] == first.job_ids[0]
    await flow.settle()
    assert (await flow.view()).jobs == 4


async def test_added_job_waits_for_the_jobs_in_after_however_they_stand(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b"), node("adds"))
    await flow.complete("a")
    await flow.settle()
    await flow.start("adds")
    added = await flow.add("adds", node("x", "a"), node("y", "b"), node("z", "x", "adds"), node("root"))
    assert added.added == 4
    await flow.settle()
    states = await flow.states()
    assert {name: states[name] for name in ("x", "y", "z", "root")} == {
        "x": "ready",
        "y": "waiting",
        "z": "waiting",
        "root": "ready",
    }


async def test_addition_after_a_failed_job_is_canceled(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("adds"))
    await flow.fail("a")
    await flow.settle()
    await flow.start("adds")
    await flow.add("adds", node("x", "a"), node("oops", "a", when="failed"))
    await flow.settle()
    states = await flow.states()
    assert (states["x"], states["oops"]) == ("canceled", "ready")


async def test_lost_claim_adds_nothing(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"))
    claim = await flow.start("a")
    for stale in (claim._replace(worker_id="other"), claim._replace(attempt=7), claim._replace(run=7)):
        addition = await flows.repo.add_to_workflow(stale, [node("x", before=["b"])], LIMITS)
        assert addition.problem == "lost"
    await flow.complete("a")
    assert (await flows.repo.add_to_workflow(claim, [node("x")], LIMITS)).problem == "lost"
    assert (await flow.view()).jobs == 2


async def test_additions_that_cannot_be_are_refused_with_names(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"), node("c", "b"), node("done"))
    await flow.complete("done")
    await flow.settle()
    await flow.start("a")
    for new, problem, names in [
        (node("x", "nothing"), "unknown", ["nothing"]),
        (node("x", before=["nothing"]), "unknown", ["nothing"]),
        (node("x", before=["done"]), "late", ["done"]),
        (node("x", before=["a"]), "late", ["a"]),
        (node("x", "c", before=["b"]), "cycle", ["c"]),
        (node("x", "b", before=["b"]), "cycle", ["b"]),
    ]:
        addition = await flow.add("a", new)
        assert (addition.problem, list(addition.names)) == (problem, names)
    many = [node(f"x-{number}") for number in range(97)]
    assert (await flow.add("a", *many)).problem == "many"
    assert (await flow.add("a", *many[:96])).added == 96


async def test_job_without_a_workflow_starts_one(flows: Flows) -> None:
    claim: Claim = await flows.store.start()
    addition = await flows.repo.add_to_workflow(claim, [node("x"), node("y", "email")], LIMITS)
    assert addition.workflow_id is not None
    ids = {"email": claim.job_id, **dict(zip("xy", addition.job_ids, strict=True))}
    flow = Flow(flows, addition.workflow_id, ids)
    await flow.settle()
    assert await flow.states() == {"email": "ready", "x": "ready", "y": "waiting"}
    again = await flows.repo.add_to_workflow(claim, [node("z", before=["y"])], LIMITS)
    assert again.workflow_id == flow.id
    flow.ids["z"] = again.job_ids[0]
    await flows.store.repo.complete_jobs([claim])
    await flow.settle()
    await flow.complete("x", "z")
    await flow.settle()
    await flow.complete("y")
    await flow.settle()
    view = await flow.view()
    assert (view.name, view.status, view.jobs) == ("email", "succeeded", 4)


async def test_refused_addition_starts_no_workflow(flows: Flows) -> None:
    claim: Claim = await flows.store.start()
    refused = await flows.repo.add_to_workflow(claim, [node("x", before=["nothing"])], LIMITS)
    assert refused.problem == "unknown"
    for table in ("workflows", "workflow_jobs", "jobs WHERE workflow_id IS NOT NULL"):
        assert await flows.connection.fetchval(f"SELECT count(*) FROM pulse.{table}") == 0
    assert (await flows.repo.add_to_workflow(claim, [node("x", "email")], LIMITS)).added == 1
    await flows.store.repo.complete_jobs([claim])
    assert (await flows.settle()).ready == 1


async def test_two_additions_at_once_start_one_workflow(flows: Flows) -> None:
    claim: Claim = await flows.store.start()
    both = [flows.repo.add_to_workflow(claim, [node(name)], LIMITS) for name in "xy"]
    answers = await asyncio.gather(*both)
    assert len({answer.workflow_id for answer in answers}) == 1
    assert await flows.connection.fetchval("SELECT jobs FROM pulse.workflows") == 3


async def test_overlap_of_a_schedule_counts_the_whole_workflow(flows: Flows) -> None:
    schedule_id = new_id()
    claim: Claim = await flows.store.start(schedule_id=schedule_id)
    await flows.repo.add_to_workflow(claim, [node("x", "email")], LIMITS)
    await flows.store.repo.complete_jobs([claim])
    is_busy = "SELECT pulse.schedule_is_busy_v1($1)"
    assert await flows.connection.fetchval(is_busy, schedule_id)
    await flows.settle()
    (child,) = await flows.store.claim()
    await flows.store.repo.complete_jobs([child])
    assert not await flows.connection.fetchval(is_busy, schedule_id)


async def test_lost_claim_starts_no_workflow(flows: Flows) -> None:
    claim: Claim = await flows.store.start()
    stale = claim._replace(run=7)
    assert (await flows.repo.add_to_workflow(stale, [node("x")], LIMITS)).problem == "lost"
    assert await flows.connection.fetchval("SELECT count(*) FROM pulse.workflows") == 0


async def test_canceled_workflow_takes_no_job(flows: Flows) -> None:
    flow = await flows.submit(node("a"))
    await flow.start("a")
    await flows.repo.cancel_workflow(flow.id)
    assert (await flow.add("a", node("x"))).problem == "canceled"
