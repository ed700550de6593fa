"""Jobs and notices that outlive their workflow. ADR-0077"""

from __future__ import annotations

from datetime import timedelta

from pulse_server.domain.ids import new_id
from pulse_server.domain.status import JobStatus
from pulse_server.upkeep.retention import ExpiredJobs
from tests.postgres.flows import Flow, Flows, node


async def delete(flows: Flows) -> None:
    """Delete ended workflows. Their unsuccessful jobs stay: topics may keep them for longer."""
    retention = ExpiredJobs(flows.database)
    assert await retention.delete_workflows(dict.fromkeys(JobStatus, timedelta()), 10) == 1


async def with_a_skipped_job(flows: Flows) -> Flow:
    flow = await flows.submit(node("a"), node("oops", "a", when="failed"))
    await flow.complete("a")
    await flow.settle()
    assert (await flow.view()).status == "succeeded"
    return flow


async def test_skipped_job_of_a_deleted_workflow_runs_once_it_is_retried(flows: Flows) -> None:
    """It has no parents any more: it would wait for ever."""
    flow = await with_a_skipped_job(flows)
    await delete(flows)
    await flow.retry("oops")
    assert (await flows.store.job(flow.ids["oops"])).ready
    (claim,) = await flows.store.claim()
    assert claim.job_id == flow.ids["oops"]
    await flows.store.repo.complete_jobs([claim])
    assert not (await flow.settle()).is_more


async def test_job_that_is_retried_while_its_workflow_is_deleted_runs(flows: Flows) -> None:
    flow = await with_a_skipped_job(flows)
    await flow.retry("oops")
    await delete(flows)
    assert (await flows.store.job(flow.ids["oops"])).ready


async def test_notice_of_a_deleted_workflow_does_not_keep_settlers_busy(flows: Flows) -> None:
    """A job ended at the moment of the delete."""
    await flows.connection.execute(
        "INSERT INTO pulse.workflow_notices VALUES ($1, ARRAY[$2::uuid], 'CANCELED')", new_id(), new_id()
    )
    assert not (await flows.repo.settle_workflows(workflows=10, notices=10, rounds=10, jobs=10)).is_more
    await with_a_skipped_job(flows)
    await delete(flows)
    assert await flows.connection.fetchval("SELECT count(*) FROM pulse.workflow_notices") == 0
