"""Workflows in the store: who becomes ready when, who is canceled, and who comes back. ADR-0077"""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.domain.errors import WorkflowExists
from pulse_server.domain.ids import new_id
from pulse_server.domain.status import JobStatus
from pulse_server.domain.unique import OnConflict, Scope, Unique
from pulse_server.upkeep.retention import ExpiredJobs
from tests.fakes.store import a_job
from tests.postgres.flows import Flows, node


async def test_jobs_become_ready_when_all_jobs_that_they_wait_for_succeeded(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b"), node("c", "a", "b"), node("d", "c"))
    assert await flow.states() == {"a": "ready", "b": "ready", "c": "waiting", "d": "waiting"}
    await flow.complete("a")
    assert (await flow.settle()).ready == 0
    await flow.complete("b")
    assert (await flow.settle()).ready == 1
    assert (await flow.states())["c"] == "ready"
    await flow.complete("c")
    await flow.settle()
    await flow.complete("d")
    assert (await flow.settle()).finished == [flow.id]
    view = await flow.view()
    assert (view.status, view.jobs, view.unfinished, view.succeeded) == ("succeeded", 4, 0, 4)


async def test_settle_reports_where_jobs_became_ready(flows: Flows) -> None:
    """Their submit may be long ago, below the floors of claims."""
    flow = await flows.submit(node("a"), node("b", "a", priority=7))
    await flow.complete("a")
    (level,) = (await flow.settle()).levels
    assert (level.topic, level.priority) == ("email", 7)
    assert level.age_seconds > 0


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


@pytest.mark.parametrize(("when", "ends", "expected"), CONDITIONS)
async def test_condition_decides(flows: Flows, when: str, ends: str, expected: str) -> None:
    flow = await flows.submit(node("a"), node("b"), node("c", "a", "b", when=when))
    for name, end in zip("ab", ends.split(), strict=True):
        await {"ok": flow.complete, "dead": flow.fail, "canceled": flow.cancel}[end](name)
        await flow.settle()
    await flow.settle()
    assert (await flow.states())["c"] == expected


async def test_job_with_a_failed_parent_is_canceled_at_once_and_its_children_follow(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b"), node("c", "a", "b"), node("d", "c"), node("e", "d"))
    await flow.fail("a")
    settled = await flow.settle()
    assert len(settled.dropped["email"]) == 3
    assert await flow.states() == {"a": "failed", "b": "ready", **dict.fromkeys("cde", "canceled")}
    job = await flows.store.job(flow.ids["c"])
    assert (job.status, job.last_error) == (JobStatus.CANCELED, "A job that it waited for did not succeed.")


async def test_skipped_job_is_no_failure(flows: Flows) -> None:
    flow = await flows.submit(
        node("a"), node("oops", "a", when="failed"), node("b", "oops"), node("c", "oops", when="always")
    )
    await flow.complete("a")
    await flow.settle()
    assert await flow.states() == {"a": "succeeded", "oops": "skipped", "b": "skipped", "c": "ready"}
    await flow.complete("c")
    await flow.settle()
    assert (await flow.view()).status == "succeeded"


async def test_retried_parent_brings_back_the_jobs_that_were_canceled_because_of_it(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"), node("c", "b"))
    await flow.fail("a")
    await flow.settle()
    assert (await flow.view()).status == "failed"
    await flow.retry("a")
    await flow.settle()
    assert await flow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    view = await flow.view()
    assert (view.status, view.unfinished, view.finished_at) == ("running", 3, None)
    for name in "abc":
        await flow.complete(name)
        await flow.settle()
    assert (await flow.view()).status == "succeeded"


async def test_job_that_an_operator_canceled_stays_canceled_and_waits_again_when_retried(
    flows: Flows,
) -> None:
    flow = await flows.submit(node("a"), node("b", "a"), node("c", "b"))
    await flow.cancel("b")
    await flow.settle()
    assert await flow.states() == {"a": "ready", "b": "canceled", "c": "canceled"}
    await flow.retry("b")
    await flow.settle()
    assert await flow.states() == {"a": "ready", "b": "waiting", "c": "waiting"}
    await flow.cancel("b")
    await flow.complete("a")
    await flow.settle()
    assert await flow.states() == {"a": "succeeded", "b": "canceled", "c": "canceled"}
    await flow.retry("b")
    await flow.settle()
    assert await flow.states() == {"a": "succeeded", "b": "ready", "c": "waiting"}


async def test_retried_job_is_canceled_again_while_its_parent_has_failed(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.fail("a")
    await flow.settle()
    await flow.retry("b")
    assert await flows.store.repo.promote_due(10) is not None
    assert not (await flows.store.job(flow.ids["b"])).ready
    await flow.settle()
    assert (await flow.states())["b"] == "canceled"


async def test_dropped_job_that_is_not_needed_any_more_counts_as_skipped(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b"), node("oops", "b", when="failed"), node("c", "a", "oops"))
    await flow.fail("a")
    await flow.complete("b")
    await flow.settle()
    assert (await flow.states())["c"] == "canceled"
    await flow.retry("a")
    await flow.settle()
    assert (await flow.states())["c"] == "skipped"
    await flow.complete("a")
    await flow.settle()
    assert (await flow.view()).status == "succeeded"


async def test_job_that_became_ready_stays_ready(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a", when="always"))
    await flow.fail("a")
    await flow.settle()
    await flow.retry("a")
    await flow.settle()
    assert await flow.states() == {"a": "ready", "b": "ready"}


async def test_older_notice_does_not_undo_a_completion(flows: Flows) -> None:
    """Dead-lettered, retried, completed: the notice of the dead letter may be taken last."""
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.fail("a")
    await flow.retry("a")
    await flow.complete("a")
    await flows.connection.execute("DELETE FROM pulse.workflow_notices WHERE status = 'COMPLETED'")
    await flow.settle()
    assert await flow.states() == {"a": "succeeded", "b": "ready"}


async def test_many_children_become_ready_in_pieces(flows: Flows) -> None:
    flow = await flows.submit(node("a"), *(node(f"child-{number}", "a") for number in range(10)))
    await flow.complete("a")
    first = await flows.settle(jobs=4)
    assert first.ready == 4
    assert first.is_more
    while (await flows.settle(jobs=4)).is_more:
        pass
    assert set((await flow.states()).values()) == {"succeeded", "ready"}


async def test_row_that_another_session_has_locked_delays_only_itself(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"), node("c", "a"))
    await flow.complete("a")
    async with flows.connection.transaction():
        await flows.connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", flow.ids["b"])
        settled = await flows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)
        assert (settled.ready, settled.is_more) == (1, True)
    assert (await flow.settle()).ready == 1
    assert await flow.states() == {"a": "succeeded", "b": "ready", "c": "ready"}


async def test_locked_row_is_looked_at_once_in_a_settle(flows: Flows) -> None:
    """Each of 50 rounds looked at it, and Postgres used two thirds of a core until the lock was gone."""
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.complete("a")
    await flows.connection.execute(COUNTED_NOTICES)
    async with flows.connection.transaction():
        await flows.connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", flow.ids["b"])
        for _ in range(2):
            settled = await flows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)
            assert (settled.ready, settled.is_more) == (0, True)
        assert await flows.connection.fetchval("SELECT count(*) FROM pulse.notices_written") == 2
    assert (await flow.settle()).ready == 1


COUNTED_NOTICES = """
CREATE TABLE pulse.notices_written (at timestamptz);
CREATE FUNCTION pulse.count_notice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pulse.notices_written VALUES (clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER counted AFTER INSERT ON pulse.workflow_notices
FOR EACH ROW EXECUTE FUNCTION pulse.count_notice();
"""


async def test_canceled_workflow_lets_no_job_start(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a", when="always"), node("c", "b", when="always"))
    await flow.start("a")
    assert await flows.repo.cancel_workflow(flow.id)
    assert await flows.repo.leave_workflow(flow.id) == [flow.ids["a"]]
    await flow.cancel("a")
    await flow.settle()
    assert await flow.states() == dict.fromkeys("abc", "canceled")
    assert (await flow.view()).status == "canceled"
    assert not await flows.repo.cancel_workflow(flow.id), "it has ended"


async def test_workflow_whose_job_came_back_is_canceled_before_it_is_settled(flows: Flows) -> None:
    """finished_at is still set: an operator retries a job, and cancels the workflow at once."""
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.fail("a")
    await flow.settle()
    await flow.retry("a")
    assert await flows.repo.cancel_workflow(flow.id)
    assert await flows.repo.leave_workflow(flow.id) == [flow.ids["a"]]
    await flow.cancel("a")
    await flow.settle()
    view = await flow.view()
    assert (view.status, view.unfinished, view.canceled) == ("canceled", 0, 2)


async def test_workflow_whose_last_job_completed_is_not_canceled_before_it_is_settled(flows: Flows) -> None:
    flow = await flows.submit(node("a"))
    await flow.complete("a")
    assert not await flows.repo.cancel_workflow(flow.id)
    await flow.settle()
    assert (await flow.view()).status == "succeeded"


async def test_retried_workflow_runs_everything_but_completed_jobs(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))
    await flow.complete("a")
    await flow.settle()
    await flow.fail("b")
    await flow.start("c")
    await flows.repo.cancel_workflow(flow.id)
    await flows.repo.leave_workflow(flow.id)
    await flow.cancel("c")
    flow.claims.clear()
    await flow.settle()
    unsuccessful = await flows.repo.unsuccessful_workflow_jobs(flow.id)
    assert set(unsuccessful) == {flow.ids["b"], flow.ids["c"]}
    await flow.retry("b", "c")
    await flows.repo.reopen_workflow(flow.id)
    await flow.settle()
    assert await flow.states() == {"a": "succeeded", "b": "ready", "c": "ready", "d": "waiting"}


async def test_reopened_workflow_starts_no_job_before_its_parents_have_come_back(flows: Flows) -> None:
    always = [node(name, "b", when="always") for name in "cd"]
    flow = await flows.submit(node("a"), node("b", "a"), *always, node("e", "c"))
    await flows.repo.cancel_workflow(flow.id)
    await flows.repo.leave_workflow(flow.id)
    await flow.cancel("a")
    await flow.settle()
    assert (await flow.view()).status == "canceled"
    await flow.retry("a")
    await flows.repo.reopen_workflow(flow.id)
    assert (await flow.view()).status == "running"
    for _ in range(6):
        await flows.settle(jobs=1)
    assert await flow.states() == {"a": "ready", **dict.fromkeys("bcde", "waiting")}
    for name in "abcde":
        await flow.complete(name)
        await flow.settle()
    assert (await flow.view()).status == "succeeded"


async def test_workflow_whose_job_came_back_has_not_ended(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.fail("a")
    assert (await flow.view()).status == "running"
    await flow.settle()
    assert (await flow.view()).status == "failed"
    await flow.retry("a")
    view = await flow.view()
    assert (view.status, view.finished_at) == ("running", None)


async def test_recount_agrees_with_the_counts_of_settles(flows: Flows) -> None:
    flow = await flows.submit(
        node("a"),
        node("b"),
        node("c", "a", "b"),
        node("d", "c", when="always"),
        node("e", "a", when="failed"),
    )
    await flow.complete("a")
    await flow.fail("b")
    await flow.settle()
    counts = "SELECT name, unended, failed, skipped, outcome FROM pulse.workflow_jobs ORDER BY name"
    before, view = await flows.connection.fetch(counts), await flow.view()
    await flows.connection.execute("UPDATE pulse.workflow_jobs SET unended = 7 WHERE number > 2")
    await flows.connection.execute("SELECT pulse.recount_workflow_v1($1)", flow.id)
    assert await flows.connection.fetch(counts) == before
    await flow.settle()
    assert await flow.view() == view


async def test_repeated_submit_stores_nothing(flows: Flows) -> None:
    first = await flows.submit(node("a"), node("b", "a"))
    again = await flows.repo.store_workflow(first.id, "nightly", b"digest", [node("a"), node("b", "a")])
    other = await flows.repo.store_workflow(first.id, "nightly", b"other", [node("a")])
    assert (again.is_new, again.is_same, again.job_ids) == (False, True, list(first.ids.values()))
    assert (other.is_new, other.is_same) == (False, False)
    assert await flows.connection.fetchval("SELECT count(*) FROM pulse.jobs") == 2


async def test_taken_unique_key_refuses_the_whole_workflow(flows: Flows) -> None:
    unique = Unique("customer-7", Scope.LIVE)
    await flows.store.repo.insert_jobs([a_job("email", unique=unique)])
    with pytest.raises(WorkflowExists, match="unique keys of b:"):
        await flows.submit(node("a"), node("b", "a", unique=unique))
    assert await flows.connection.fetchval("SELECT count(*) FROM pulse.jobs") == 1
    assert await flows.connection.fetchval("SELECT count(*) FROM pulse.workflows") == 0


async def test_submit_that_replaces_a_waiting_job_does_not_make_it_ready(flows: Flows) -> None:
    key = Unique("customer-7")
    flow = await flows.submit(node("a"), node("b", "a", unique=key))
    replacing = a_job("email", payload=b"new", unique=key._replace(on_conflict=OnConflict.REPLACE))
    (answer,) = await flows.store.repo.insert_rich_jobs([replacing])
    assert answer.is_replaced  # type: ignore[union-attr]
    job = await flows.store.job(flow.ids["b"])
    assert (job.payload, job.ready) == (b"new", False)
    await flow.complete("a")
    assert (await flow.settle()).ready == 1


async def test_times_count_from_when_the_job_becomes_ready(flows: Flows) -> None:
    flow = await flows.submit(
        node("a"),
        node("later", "a", delay=timedelta(hours=1)),
        node("soon", "a", start_within=timedelta(minutes=5)),
    )
    job = await flows.store.job(flow.ids["soon"])
    assert job.start_by is None
    await flow.complete("a")
    assert (await flow.settle()).ready == 1
    now = await flows.store.repo.database_now()
    later, soon = [await flows.store.job(flow.ids[name]) for name in ("later", "soon")]
    assert timedelta(minutes=59) < later.next_run_at - now <= timedelta(hours=1)
    assert not later.ready
    assert soon.start_by is not None
    assert timedelta(minutes=4) < soon.start_by - now <= timedelta(minutes=5)


async def test_jobs_of_an_unfinished_workflow_are_not_deleted(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.complete("a")
    await flow.settle()
    assert await flows.store.repo.delete_jobs([flow.ids["a"]], set(JobStatus)) == {}
    await flow.complete("b")
    await flow.settle()
    assert await flows.store.repo.delete_jobs([flow.ids["a"]], set(JobStatus)) != {}
    assert (await flow.states()) == {"a": "succeeded", "b": "succeeded"}


async def test_workflow_is_deleted_as_a_whole(flows: Flows) -> None:
    retention = ExpiredJobs(flows.database)
    now, later = dict.fromkeys(JobStatus, timedelta()), dict.fromkeys(JobStatus, timedelta(hours=1))
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.complete("a")
    await flow.settle()
    assert await retention.delete_workflows(now, 10) == 0
    await flow.complete("b")
    await flow.settle()
    assert await retention.delete_workflows(later, 10) == 0
    assert await retention.delete_workflows({**now, JobStatus.COMPLETED: None}, 10) == 0
    assert await retention.delete_workflows({**now, JobStatus.DEAD_LETTERED: None}, 10) == 1
    for table in ("workflows", "workflow_jobs", "workflow_edges", "workflow_notices"):
        assert await flows.connection.fetchval(f"SELECT count(*) FROM pulse.{table}") == 0


async def test_results_of_an_unfinished_workflow_outlive_their_day(flows: Flows) -> None:
    await flows.store.repo.complete_jobs([await flows.store.start()])
    flow = await flows.submit(node("a"), node("b", "a"))
    await flow.complete("a", result=b"[1]")
    await flow.settle()
    await flows.connection.execute(
        "SELECT pulse.add_completed_days_v1((now() AT TIME ZONE 'UTC')::date - 3, 1)"
    )
    await flows.connection.execute(
        "UPDATE pulse.completed_jobs SET finished_at = finished_at - interval '3 days'"
    )
    await flows.connection.execute(
        "UPDATE pulse.workflows SET submitted_at = submitted_at - interval '3 days'"
    )
    dropped = "SELECT pulse.drop_completed_day_v1((now() AT TIME ZONE 'UTC')::date - 3, now())"
    assert await flows.connection.fetchval(dropped) is not None
    kept = await flows.connection.fetch("SELECT id, kept FROM pulse.completed_jobs")
    assert [(str(row["id"]), row["kept"]) for row in kept] == [(flow.ids["a"], True)]
    (parent,) = await flow.nodes(child=2, results=True)
    assert parent.result == b"[1]"


async def test_parents_are_listed_with_their_results(flows: Flows) -> None:
    flow = await flows.submit(node("a"), node("b"), node("c", "a", "b", when="always"), node("d"))
    await flow.complete("a", result=b"[1]")
    await flow.fail("b")
    await flow.settle()
    numbers = {each.name: each.number for each in await flow.nodes()}
    parents = await flow.nodes(child=numbers["c"], results=True)
    assert [(each.name, each.result, each.outcome) for each in parents] == [
        ("a", b"[1]", "succeeded"),
        ("b", None, "failed"),
    ]
    assert [each.name for each in await flow.nodes(unended=True)] == ["c", "d"]
    assert [each.name for each in await flow.nodes(after=2, limit=1)] == ["c"]
    assert await flows.repo.find_workflow_job(flow.ids["c"]) == (flow.id, numbers["c"])
    assert await flows.repo.find_workflow_job(new_id()) is None


async def test_newest_workflows_are_listed_first(flows: Flows) -> None:
    old = await flows.submit(node("a"))
    new = await flows.submit(node("a"))
    await old.complete("a")
    await old.settle()
    listed = await flows.repo.list_workflows(None, None, limit=10, after=None)
    assert [workflow.id for workflow in listed] == [new.id, old.id]
    running = await flows.repo.list_workflows("nightly", "running", limit=10, after=None)
    assert [workflow.id for workflow in running] == [new.id]
    assert await flows.repo.list_workflows("other", None, limit=10, after=None) == []
