"""A workflow that cannot be settled does not stop the others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest

from pulse_server.base.loops import lease_clock
from pulse_server.jobs.new_jobs import Scope, Unique
from pulse_server.workflows import service as settling
from pulse_server.workflows.rules import Settled, WorkflowsLocked
from pulse_server.workflows.service import WorkflowPublisher, WorkflowSettler
from tests.postgres.workflow_stores import StoredWorkflows, node

# Any error that is of a row, and not of the database: a trigger of a stranger, or a bug of ours.
_REFUSE = """
CREATE FUNCTION pulse.refuse_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
CREATE TRIGGER refused BEFORE UPDATE ON pulse.jobs FOR EACH ROW
WHEN (NEW.priority = 13) EXECUTE FUNCTION pulse.refuse_job();
"""
_ACCEPT = "DROP FUNCTION IF EXISTS pulse.refuse_job CASCADE"


class NoPublisher:
    def ready(self, *_: Any) -> None: ...

    def dropped(self, *_: Any) -> None: ...


@pytest.fixture
async def settler(workflows: StoredWorkflows) -> AsyncIterator[WorkflowSettler]:
    yield WorkflowSettler(workflows.repo, cast("WorkflowPublisher", NoPublisher()))
    await workflows.connection.execute(_ACCEPT)


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the rest of a locked workflow be over."""
    rest = settling.LOCKED_REST + timedelta(seconds=1)
    return lambda: monkeypatch.setattr(settling, "lease_clock", lambda: lease_clock() + rest.total_seconds())


@contextlib.asynccontextmanager
async def lock_held(dsn: str, statement: str) -> AsyncIterator[None]:
    """Another session that has run the statement in a transaction, and rolls it back at the end."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("BEGIN")
        await connection.execute(statement)
        yield
    finally:
        await connection.close()


async def test_others_go_on_and_it_is_tried_again_after_a_rest(
    workflows: StoredWorkflows,
    settler: WorkflowSettler,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = await workflows.submit(node("a"), node("b", "a", priority=13))
    before, after = [await workflows.submit(node("a"), node("b", "a")) for _ in range(2)]
    await failing.complete("a")
    await before.complete("a")
    await workflows.connection.execute(_REFUSE)

    assert await settler.tick() == settling.SETTLE_INTERVAL
    assert (await before.states())["b"] == "ready"
    assert (await failing.states())["b"] == "waiting"
    assert [vars(record)["workflow_id"] for record in caplog.records] == [failing.id]

    await before.complete("b")
    await after.complete("a")
    await settler.tick()
    assert (await after.states())["b"] == "ready"
    assert len(caplog.records) == 1, "it is left alone"

    await workflows.connection.execute(_ACCEPT)
    rest = settling.FAILING_REST + timedelta(seconds=1)
    monkeypatch.setattr(settling, "lease_clock", lambda: lease_clock() + rest.total_seconds())
    await settler.tick()
    assert (await failing.states())["b"] == "ready"


async def test_others_go_on_while_a_stranger_has_locked_a_row_of_one(
    workflows: StoredWorkflows, settler: WorkflowSettler, rested: Callable[[], None], shared_dsn: str
) -> None:
    locked, other = [await workflows.submit(node("a"), node("b", "a")) for _ in range(2)]
    await locked.complete("a")
    await other.complete("a")
    async with lock_held(
        shared_dsn, f"SELECT FROM pulse.workflow_jobs WHERE job_id = '{locked.ids['b']}' FOR UPDATE"
    ):
        await settler.tick()
        assert (await other.states())["b"] == "ready"
        assert (await locked.states())["b"] == "waiting"
    rested()
    await settler.tick()
    assert (await locked.states())["b"] == "ready"


async def test_others_go_on_while_an_open_transaction_holds_the_key_of_a_job_that_comes_back(
    workflows: StoredWorkflows, settler: WorkflowSettler, rested: Callable[[], None], shared_dsn: str
) -> None:
    locked = await workflows.submit(node("a"), node("b", "a", unique=Unique("order-1", Scope.LIVE)))
    other = await workflows.submit(node("a"), node("b", "a"))
    await locked.fail("a")
    await locked.settle()
    await other.complete("a")
    await locked.retry("a")
    async with lock_held(
        shared_dsn, "SELECT pulse.enqueue('email', '', unique_key => 'order-1', unique_scope => 'live')"
    ):
        await settler.tick()
        assert (await other.states())["b"] == "ready"
        assert (await locked.states())["b"] == "canceled"
    rested()
    await settler.tick()
    assert (await locked.states())["b"] == "waiting"


async def test_as_many_locked_ones_as_a_settle_takes_hide_no_other(
    workflows: StoredWorkflows, settler: WorkflowSettler, shared_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "SETTLE_WORKFLOWS", 1)
    pair = [await workflows.submit(node("a"), node("b", "a")) for _ in range(2)]
    first, other = sorted(pair, key=lambda workflow: workflow.id)
    for workflow in pair:
        await workflow.complete("a")
    async with lock_held(
        shared_dsn, f"SELECT FROM pulse.workflow_jobs WHERE job_id = '{first.ids['b']}' FOR UPDATE"
    ):
        await settler.tick()  # finds the lock
        await settler.tick()
        assert (await other.states())["b"] == "ready"


async def test_lock_that_is_gone_when_they_are_settled_alone_is_no_failure(
    workflows: StoredWorkflows, settler: WorkflowSettler, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = await workflows.submit(node("a"), node("b", "a"))
    await workflow.complete("a")
    settle = workflows.repo.settle_workflows

    async def meet_a_lock(**which: Any) -> Settled:
        if which["wanted"] is None:
            raise WorkflowsLocked
        return await settle(**which)

    monkeypatch.setattr(workflows.repo, "settle_workflows", meet_a_lock)
    assert (await settler.settle()).is_more
    assert (await workflow.states())["b"] == "ready"


async def test_failure_without_a_failing_workflow_is_raised(
    workflows: StoredWorkflows, settler: WorkflowSettler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(**_: object) -> None:
        raise asyncpg.DataError("a bug")

    monkeypatch.setattr(workflows.repo, "settle_workflows", fail)
    with pytest.raises(asyncpg.DataError):
        await settler.settle()
