"""Workflows in Postgres: notices, bounds of a settle, locked rows, counts and retention. ADR-0077"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pulse_server.jobs.rules import JobStatus
from pulse_server.work.retention import ExpiredJobs
from tests.postgres.sessions import Connection
from tests.postgres.workflow_stores import StoredWorkflows, node


async def test_older_notice_does_not_undo_a_completion(workflows: StoredWorkflows) -> None:
    """Dead-lettered, retried, completed: the notice of the dead letter may be taken last."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.fail("a")
    await workflow.retry("a")
    await workflow.complete("a")
    await workflows.connection.execute("DELETE FROM pulse.workflow_notices WHERE status = 'COMPLETED'")
    await workflow.settle()
    assert await workflow.states() == {"a": "succeeded", "b": "ready"}


async def test_many_children_become_ready_in_pieces(workflows: StoredWorkflows) -> None:
    workflow = await workflows.submit(node("a"), *(node(f"child-{number}", "a") for number in range(10)))
    await workflow.complete("a")
    first = await workflows.settle(jobs=4)
    assert first.ready == 4
    assert first.is_more
    while (await workflows.settle(jobs=4)).is_more:
        pass
    assert set((await workflow.states()).values()) == {"succeeded", "ready"}


async def test_row_that_another_session_has_locked_delays_only_itself(
    workflows: StoredWorkflows,
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"), node("c", "a"))
    await workflow.complete("a")
    async with workflows.connection.transaction():
        await workflows.connection.execute(
            "SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", workflow.ids["b"]
        )
        settled = await workflows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)
        assert (settled.ready, settled.is_more) == (1, True)
    assert (await workflow.settle()).ready == 1
    assert await workflow.states() == {"a": "succeeded", "b": "ready", "c": "ready"}


@pytest.fixture
async def counted_notices(connection: Connection) -> AsyncIterator[None]:
    """Counts notices in a table, which other tests of this database must not find."""
    await connection.execute(COUNTED_NOTICES)
    yield
    await connection.execute("DROP FUNCTION pulse.count_notice CASCADE; DROP TABLE pulse.notices_written")


@pytest.mark.usefixtures("counted_notices")
async def test_locked_row_is_looked_at_once_in_a_settle(workflows: StoredWorkflows) -> None:
    """Each of 50 rounds looked at it, and Postgres used two thirds of a core until the lock was gone."""
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.complete("a")
    await workflows.connection.execute("DELETE FROM pulse.notices_written")
    async with workflows.connection.transaction():
        await workflows.connection.execute(
            "SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", workflow.ids["b"]
        )
        for _ in range(2):
            settled = await workflows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)
            assert (settled.ready, settled.is_more) == (0, True)
        assert await workflows.connection.fetchval("SELECT count(*) FROM pulse.notices_written") == 2
    assert (await workflow.settle()).ready == 1


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


async def test_workflow_whose_job_came_back_has_not_ended(workflows: StoredWorkflows) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.fail("a")
    assert (await workflow.view()).status == "running"
    await workflow.settle()
    assert (await workflow.view()).status == "failed"
    await workflow.retry("a")
    view = await workflow.view()
    assert (view.status, view.finished_at) == ("running", None)


async def test_recount_agrees_with_the_counts_of_settles(workflows: StoredWorkflows) -> None:
    workflow = await workflows.submit(
        node("a"),
        node("b"),
        node("c", "a", "b"),
        node("d", "c", when="always"),
        node("e", "a", when="failed"),
    )
    await workflow.complete("a")
    await workflow.fail("b")
    await workflow.settle()
    counts = "SELECT name, unended, failed, skipped, outcome FROM pulse.workflow_jobs ORDER BY name"
    before, view = await workflows.connection.fetch(counts), await workflow.view()
    await workflows.connection.execute("UPDATE pulse.workflow_jobs SET unended = 7 WHERE number > 2")
    await workflows.connection.execute("SELECT pulse.recount_workflow_v1($1)", workflow.id)
    assert await workflows.connection.fetch(counts) == before
    await workflow.settle()
    assert await workflow.view() == view


async def test_workflow_is_deleted_as_a_whole(workflows: StoredWorkflows) -> None:
    retention = ExpiredJobs(workflows.database)
    now, later = dict.fromkeys(JobStatus, timedelta()), dict.fromkeys(JobStatus, timedelta(hours=1))
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.complete("a")
    await workflow.settle()
    assert await retention.delete_workflows(now, 10) == 0
    await workflow.complete("b")
    await workflow.settle()
    assert await retention.delete_workflows(later, 10) == 0
    assert await retention.delete_workflows({**now, JobStatus.COMPLETED: None}, 10) == 0
    assert await retention.delete_workflows({**now, JobStatus.DEAD_LETTERED: None}, 10) == 1
    for table in ("workflows", "workflow_jobs", "workflow_edges", "workflow_notices"):
        assert await workflows.connection.fetchval(f"SELECT count(*) FROM pulse.{table}") == 0


async def test_results_of_an_unfinished_workflow_outlive_their_day(workflows: StoredWorkflows) -> None:
    await workflows.store.repo.complete_jobs([await workflows.store.start()])
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.complete("a", result=b"[1]")
    await workflow.settle()
    await workflows.connection.execute(
        "SELECT pulse.add_completed_days_v1((now() AT TIME ZONE 'UTC')::date - 3, 1)"
    )
    await workflows.connection.execute(
        "UPDATE pulse.completed_jobs SET finished_at = finished_at - interval '3 days'"
    )
    await workflows.connection.execute(
        "UPDATE pulse.workflows SET submitted_at = submitted_at - interval '3 days'"
    )
    dropped = "SELECT pulse.drop_completed_day_v1((now() AT TIME ZONE 'UTC')::date - 3, now())"
    assert await workflows.connection.fetchval(dropped) is not None
    kept = await workflows.connection.fetch("SELECT id, kept FROM pulse.completed_jobs")
    assert [(str(row["id"]), row["kept"]) for row in kept] == [(workflow.ids["a"], True)]
    (parent,) = await workflow.nodes(child=workflow.ids["b"], results=True)
    assert parent.result == b"[1]"
