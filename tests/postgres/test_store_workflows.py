"""Workflows: which jobs become ready, and which are canceled. ADR-0077"""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.base.errors import WorkflowExists
from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import OnConflict, Scope, Unique
from pulse_server.jobs.rules import JobStatus
from tests.fakes.store import a_job
from tests.postgres.workflow_stores import WorkflowStore, node

CONDITIONS = [
    # the condition, how two jobs before it end, and what becomes of it
    ("succeeded", "ok ok", "ready"),
    ("succeeded", "ok dead", "canceled"),
    ("succeeded", "ok canceled", "canceled"),
    ("failed", "ok ok", "skipped"),
    ("failed", "ok dead", "ready"),
    ("failed", "canceled ok", "ready"),
    ("always", "ok ok", "ready"),
    ("always", "dead canceled", "ready"),
]


async def test_jobs_become_ready_when_all_jobs_that_they_wait_for_succeeded(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b"), node("c", "a", "b"), node("d", "c"))
    assert await workflow.states() == {"a": "ready", "b": "ready", "c": "waiting", "d": "waiting"}
    await workflow.complete("a")
    assert (await workflow.settle()).ready == 0
    await workflow.complete("b")
    assert (await workflow.settle()).ready == 1
    assert (await workflow.states())["c"] == "ready"
    await workflow.complete("c")
    await workflow.settle()
    await workflow.complete("d")
    assert (await workflow.settle()).finished == [workflow.id]
    view = await workflow.view()
    assert (view.status, view.jobs, view.unfinished, view.succeeded) == ("succeeded", 4, 0, 4)


async def test_settle_reports_where_jobs_became_ready(workflows: WorkflowStore) -> None:
    """Their submit may be long ago, below the floors of claims."""
    workflow = await workflows.submit(node("a"), node("b", "a", priority=7))
    await workflow.complete("a")
    (level,) = (await workflow.settle()).levels
    assert (level.topic, level.priority) == ("email", 7)
    assert level.age_seconds > 0


@pytest.mark.parametrize(("when", "ends", "expected"), CONDITIONS)
async def test_condition_decides(workflows: WorkflowStore, when: str, ends: str, expected: str) -> None:
    workflow = await workflows.submit(node("a"), node("b"), node("c", "a", "b", when=when))
    for name, end in zip("ab", ends.split(), strict=True):
        await {"ok": workflow.complete, "dead": workflow.fail, "canceled": workflow.cancel}[end](name)
        await workflow.settle()
    await workflow.settle()
    assert (await workflow.states())["c"] == expected


async def test_job_with_a_failed_parent_is_canceled_at_once_and_its_children_follow(
    workflows: WorkflowStore,
) -> None:
    workflow = await workflows.submit(
        node("a"), node("b"), node("c", "a", "b"), node("d", "c"), node("e", "d")
    )
    await workflow.fail("a")
    settled = await workflow.settle()
    assert len(settled.dropped["email"]) == 3
    assert await workflow.states() == {"a": "failed", "b": "ready", **dict.fromkeys("cde", "canceled")}
    job = await workflows.store.job(workflow.ids["c"])
    assert (job.status, job.last_error) == (JobStatus.CANCELED, "A job that it waited for did not succeed.")


async def test_skipped_job_is_no_failure(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(
        node("a"), node("oops", "a", when="failed"), node("b", "oops"), node("c", "oops", when="always")
    )
    await workflow.complete("a")
    await workflow.settle()
    assert await workflow.states() == {"a": "succeeded", "oops": "skipped", "b": "skipped", "c": "ready"}
    await workflow.complete("c")
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_repeated_submit_stores_nothing(workflows: WorkflowStore) -> None:
    first = await workflows.submit(node("a"), node("b", "a"))
    again = await workflows.repo.store_workflow(first.id, "nightly", b"digest", [node("a"), node("b", "a")])
    other = await workflows.repo.store_workflow(first.id, "nightly", b"other", [node("a")])
    assert (again.is_new, again.is_same, again.job_ids) == (False, True, list(first.ids.values()))
    assert (other.is_new, other.is_same) == (False, False)
    assert await workflows.count() == (1, 2)


async def test_taken_unique_key_refuses_the_whole_workflow(workflows: WorkflowStore) -> None:
    unique = Unique("customer-7", Scope.LIVE)
    await workflows.store.repo.insert_jobs([a_job("email", unique=unique)])
    with pytest.raises(WorkflowExists, match="unique keys of b:"):
        await workflows.submit(node("a"), node("b", "a", unique=unique))
    assert await workflows.count() == (0, 1)


async def test_submit_that_replaces_a_waiting_job_does_not_make_it_ready(workflows: WorkflowStore) -> None:
    key = Unique("customer-7")
    workflow = await workflows.submit(node("a"), node("b", "a", unique=key))
    replacing = a_job("email", payload=b"new", unique=key._replace(on_conflict=OnConflict.REPLACE))
    (answer,) = await workflows.store.repo.insert_rich_jobs([replacing])
    assert answer.is_replaced  # type: ignore[union-attr]
    job = await workflows.store.job(workflow.ids["b"])
    assert (job.payload, job.ready) == (b"new", False)
    await workflow.complete("a")
    assert (await workflow.settle()).ready == 1


async def test_times_count_from_when_the_job_becomes_ready(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(
        node("a"),
        node("later", "a", delay=timedelta(hours=1)),
        node("soon", "a", start_within=timedelta(minutes=5)),
    )
    job = await workflows.store.job(workflow.ids["soon"])
    assert job.start_by is None
    await workflow.complete("a")
    assert (await workflow.settle()).ready == 1
    now = await workflows.store.repo.database_now()
    later, soon = [await workflows.store.job(workflow.ids[name]) for name in ("later", "soon")]
    assert timedelta(minutes=59) < later.next_run_at - now <= timedelta(hours=1)
    assert not later.ready
    assert soon.start_by is not None
    assert timedelta(minutes=4) < soon.start_by - now <= timedelta(minutes=5)


async def test_jobs_of_an_unfinished_workflow_are_not_deleted(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.complete("a")
    await workflow.settle()
    assert await workflows.store.repo.delete_jobs([workflow.ids["a"]], set(JobStatus)) == {}
    needed = await workflows.store.repo.jobs_of_unended_workflows([workflow.ids["a"], new_id()])
    assert needed == {workflow.ids["a"]}
    await workflow.complete("b")
    await workflow.settle()
    assert await workflows.store.repo.jobs_of_unended_workflows([workflow.ids["a"]]) == set()
    assert await workflows.store.repo.delete_jobs([workflow.ids["a"]], set(JobStatus)) != {}
    assert (await workflow.states()) == {"a": "succeeded", "b": "succeeded"}


async def test_parents_are_listed_with_their_results(workflows: WorkflowStore) -> None:
    workflow = await workflows.submit(node("a"), node("b"), node("c", "a", "b", when="always"), node("d"))
    await workflow.complete("a", result=b"[1]")
    await workflow.fail("b")
    await workflow.settle()
    parents = await workflow.nodes(child=workflow.ids["c"], results=True)
    assert [(each.name, each.result, each.outcome) for each in parents] == [
        ("a", b"[1]", "succeeded"),
        ("b", None, "failed"),
    ]
    assert [each.name for each in await workflow.nodes(unended=True)] == ["c", "d"]
    assert [each.name for each in await workflow.nodes(after=2, limit=1)] == ["c"]
    assert await workflows.repo.find_workflow_job(workflow.ids["c"]) == workflow.id
    assert await workflows.repo.find_workflow_job(new_id()) is None


async def test_newest_workflows_are_listed_first(workflows: WorkflowStore) -> None:
    old = await workflows.submit(node("a"))
    new = await workflows.submit(node("a"))
    await old.complete("a")
    await old.settle()
    listed = await workflows.repo.list_workflows(None, None, limit=10, after=None)
    assert [workflow.id for workflow in listed] == [new.id, old.id]
    running = await workflows.repo.list_workflows("nightly", "running", limit=10, after=None)
    assert [workflow.id for workflow in running] == [new.id]
    assert await workflows.repo.list_workflows("other", None, limit=10, after=None) == []
