"""Jobs that a job of a schedule adds count for its overlap. ADR-0077"""

from __future__ import annotations

from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim
from tests.postgres.workflow_stores import BOUNDS, StoredWorkflows, node


async def test_overlap_of_a_schedule_counts_the_whole_workflow(stored_workflows: StoredWorkflows) -> None:
    schedule_id = new_id()
    claim: Claim = await stored_workflows.store.start(schedule_id=schedule_id)
    await stored_workflows.repo.add_to_workflow(claim, [node("x", "email")], BOUNDS)
    await stored_workflows.store.repo.complete_jobs([claim])
    is_busy = "SELECT pulse.schedule_is_busy_v1($1)"
    assert await stored_workflows.connection.fetchval(is_busy, schedule_id)
    await stored_workflows.settle()
    (child,) = await stored_workflows.store.claim()
    await stored_workflows.store.repo.complete_jobs([child])
    assert not await stored_workflows.connection.fetchval(is_busy, schedule_id)
