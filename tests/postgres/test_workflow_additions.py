"""Jobs that a job of a schedule adds count for its overlap. ADR-0077"""

from __future__ import annotations

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import Claim
from tests.postgres.workflow_stores import BOUNDS, StoredWorkflows, node


async def test_overlap_of_a_schedule_counts_the_whole_workflow(workflows: StoredWorkflows) -> None:
    schedule_id = new_id()
    claim: Claim = await workflows.store.start(schedule_id=schedule_id)
    await workflows.repo.add_to_workflow(claim, [node("x", "email")], BOUNDS)
    await workflows.store.repo.complete_jobs([claim])
    is_busy = "SELECT pulse.schedule_is_busy_v1($1)"
    assert await workflows.connection.fetchval(is_busy, schedule_id)
    await workflows.settle()
    (child,) = await workflows.store.claim()
    await workflows.store.repo.complete_jobs([child])
    assert not await workflows.connection.fetchval(is_busy, schedule_id)
