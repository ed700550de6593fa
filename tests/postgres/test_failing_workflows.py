"""A workflow that cannot be settled does not stop the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest

from pulse_server.clock import lease_clock
from pulse_server.service import settler as settling
from pulse_server.service.settler import Settler
from pulse_server.service.workflow_publisher import WorkflowPublisher
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
async def settler(stored_workflows: StoredWorkflows) -> AsyncIterator[Settler]:
    yield Settler(stored_workflows.repo, cast("WorkflowPublisher", NoPublisher()))
    await stored_workflows.connection.execute(_ACCEPT)


async def test_others_go_on_and_it_is_tried_again_after_a_rest(
    stored_workflows: StoredWorkflows,
    settler: Settler,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = await stored_workflows.submit(node("a"), node("b", "a", priority=13))
    before, after = [await stored_workflows.submit(node("a"), node("b", "a")) for _ in range(2)]
    await failing.complete("a")
    await before.complete("a")
    await stored_workflows.connection.execute(_REFUSE)

    assert await settler.tick() == settling.SETTLE_INTERVAL
    assert (await before.states())["b"] == "ready"
    assert (await failing.states())["b"] == "waiting"
    assert [vars(record)["workflow_id"] for record in caplog.records] == [failing.id]

    await before.complete("b")
    await after.complete("a")
    await settler.tick()
    assert (await after.states())["b"] == "ready"
    assert len(caplog.records) == 1, "it is left alone"

    await stored_workflows.connection.execute(_ACCEPT)
    rest = settling.FAILING_REST + timedelta(seconds=1)
    monkeypatch.setattr(settling, "lease_clock", lambda: lease_clock() + rest.total_seconds())
    await settler.tick()
    assert (await failing.states())["b"] == "ready"


async def test_failure_without_a_failing_workflow_is_raised(
    stored_workflows: StoredWorkflows, settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(**_: object) -> None:
        raise asyncpg.DataError("a bug")

    monkeypatch.setattr(stored_workflows.repo, "settle_workflows", fail)
    with pytest.raises(asyncpg.DataError):
        await settler.settle()
