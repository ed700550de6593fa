"""Workflows in the store and in the model, and shortcuts for tests of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pulse_server.base.ids import new_id
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import Claim, JobFilter, JobStatus
from pulse_server.workflows.rules import (
    Addition,
    NewNode,
    Node,
    Settled,
    When,
    Workflow,
    WorkflowBounds,
    in_order,
)
from pulse_server.workflows.store import PostgresWorkflowRepo
from tests.fakes.store import Store, a_job, failure
from tests.model.jobs import ModelTime
from tests.model.workflows import WorkflowModel
from tests.postgres.sessions import Connection

BOUNDS = WorkflowBounds(100, 1000)


def node(name: str, *after: str, when: str = "succeeded", before: Sequence[str] = (), **job: Any) -> NewNode:
    return NewNode(name, a_job("email", **job), after, When(when), before)


@dataclass
class SubmittedWorkflow:
    """A workflow under test: each job is named as in its definition."""

    workflows: WorkflowStore
    id: str
    ids: dict[str, str]
    claims: dict[str, Claim] = field(default_factory=dict)

    async def start(self, name: str) -> Claim:
        """Claim jobs until this one runs."""
        while name not in self.claims:
            claims = await self.workflows.store.claim()
            assert claims, f"{name} is not ready: {await self.states()}"
            names = {job_id: name for name, job_id in self.ids.items()}
            self.claims[names[claims[0].job_id]] = claims[0]
        return self.claims[name]

    async def complete(self, *names: str, result: bytes | None = None) -> None:
        for name in names:
            claim = await self.start(name)
            await self.workflows.store.repo.complete_jobs([claim], {claim: result} if result else {})
            del self.claims[name]

    async def fail(self, *names: str) -> None:
        """Dead-letter the jobs."""
        for name in names:
            claim = await self.start(name)
            await self.workflows.store.repo.fail_jobs([failure(claim, discard=True)])
            del self.claims[name]

    async def cancel(self, *names: str) -> None:
        await self.workflows.store.repo.cancel_jobs(
            [self.ids[name] for name in names], "by hand", set(JobStatus)
        )

    async def retry(self, *names: str) -> None:
        await self.workflows.store.repo.retry_jobs(
            [self.ids[name] for name in names], 5, set(JobStatus), fresh=False
        )

    async def cancel_whole(self) -> set[str] | None:
        """Cancel the workflow. Returns the jobs that this canceled at once; None: all had ended."""
        answer = await self.workflows.repo.cancel_workflow(self.id, "by hand")
        assert not answer.left
        return self._names([entry.job.id for entry in answer.jobs]) if answer.is_canceled else None

    async def retry_whole(self) -> set[str]:
        """Retry the workflow. Returns the jobs that the workflow had not canceled itself."""
        return self._names([job.id for job in await self.workflows.repo.retry_workflow(self.id, 5)])

    def _names(self, job_ids: Sequence[str]) -> set[str]:
        return {name for name, job_id in self.ids.items() if job_id in job_ids}

    async def settle(self) -> Settled:
        return await self.workflows.settle()

    async def nodes(self, **which: Any) -> list[Node]:
        asked: dict[str, Any] = {
            "child": None,
            "names": None,
            "unended": False,
            "results": False,
            "after": 0,
            "limit": 1000,
        }
        return await self.workflows.repo.list_workflow_jobs(self.id, **asked | which)

    async def states(self) -> dict[str, str]:
        """Each job: its outcome if it has ended, or else its state."""
        return {each.name: each.outcome or each.state for each in await self.nodes()}

    async def view(self) -> Workflow:
        workflow = await self.workflows.repo.get_workflow(self.id)
        assert workflow is not None
        return workflow

    async def add(self, by: str, *nodes: NewNode) -> Addition:
        addition = await self.workflows.repo.add_to_workflow(self.claims[by], nodes, BOUNDS)
        names = [each.name for each in nodes]
        self.ids |= dict(zip(names, addition.job_ids, strict=not addition.problem))
        return addition


@dataclass
class WorkflowStore:
    store: Store
    repo: PostgresWorkflowRepo | WorkflowModel

    async def submit(self, *nodes: NewNode, workflow_id: str = "") -> SubmittedWorkflow:
        workflow_id = workflow_id or new_id()
        ordered = in_order(nodes)
        stored = await self.repo.store_workflow(workflow_id, "nightly", b"digest", ordered)
        return SubmittedWorkflow(
            self, workflow_id, dict(zip((each.name for each in ordered), stored.job_ids, strict=True))
        )

    async def settle(self, *, jobs: int = 1000, rounds: int = 50) -> Settled:
        return await self.repo.settle_workflows(workflows=100, notices=1000, rounds=rounds, jobs=jobs)

    async def count(self) -> tuple[int, int]:
        """How many workflows and jobs are stored."""
        workflows = await self.repo.list_workflows(None, None, limit=100, after=None)
        return len(workflows), await self.store.repo.count_matching_jobs(JobFilter())


@dataclass
class StoredWorkflows(WorkflowStore):
    """Over Postgres."""

    database: Database
    connection: Connection

    async def settle(self, *, jobs: int = 1000, rounds: int = 50) -> Settled:
        """One settle. Fails if a count differs from what the edges say once no notice is left."""
        settled = await super().settle(jobs=jobs, rounds=rounds)
        if not settled.is_more:
            assert await self.connection.fetch(WRONG_COUNTS) == []
        return settled


def modeled_workflows() -> WorkflowStore:
    model = WorkflowModel()
    return WorkflowStore(Store(model, ModelTime(model)), model)


WRONG_COUNTS = """
SELECT node.name, node.unended, node.failed, node.skipped, real.*
FROM pulse.workflow_jobs AS node
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE parent.outcome IS NULL) AS unended,
        count(*) FILTER (WHERE parent.outcome IN ('failed', 'canceled')) AS failed,
        count(*) FILTER (WHERE parent.outcome = 'skipped') AS skipped
    FROM pulse.workflow_edges AS edge
    JOIN pulse.workflow_jobs AS parent ON parent.job_id = edge.parent AND parent.number = edge.number
    WHERE edge.child = node.job_id
) AS real
WHERE (node.unended, node.failed, node.skipped) IS DISTINCT FROM (real.unended, real.failed, real.skipped)
"""
