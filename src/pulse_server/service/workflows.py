"""Workflows: submit them, add to them, wait for them, cancel and retry them. ADR-0077"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidTransition, WorkflowExists, WorkflowNotFound
from pulse_server.base.ids import Page, PageKey, fitting, page_of
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.workflows import (
    Addition,
    NewNode,
    Node,
    Stored,
    Workflow,
    WorkflowBounds,
    check_addition,
    check_edges,
    check_keys,
    in_order,
    shown,
)
from pulse_server.jobs.reports import lost
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.postgres.workflows import PostgresWorkflowRepo
from pulse_server.service.settler import Settler
from pulse_server.service.workflow_publisher import WorkflowPublisher
from pulse_server.work.jobs import Jobs

# How often a workflow that a client waits for is read: it may end at another server.
WAIT_LOOK = timedelta(milliseconds=500)
# Settles of one call that cancels or retries a workflow, of a thousand jobs each.
SETTLES_OF_A_CALL = 5
# The approximate size of a job of a workflow in an answer, without its texts and result.
_NODE_BYTES = 200

T = TypeVar("T")


class Workflows:
    def __init__(
        self,
        repo: PostgresWorkflowRepo,
        job_repo: PostgresJobRepo,
        jobs: Jobs,
        job_publisher: Publisher,
        publisher: WorkflowPublisher,
        settler: Settler,
        most_jobs: int,
    ) -> None:
        self._repo = repo
        self._job_repo = job_repo
        self._jobs = jobs
        self._job_publisher = job_publisher
        self._publisher = publisher
        self._settler = settler
        self.bounds = WorkflowBounds(most_jobs, 10 * most_jobs)

    async def submit(self, workflow_id: str, name: str, digest: bytes, nodes: Sequence[NewNode]) -> Stored:
        """Store the workflow with its jobs, all or none. Their ids are in the order of `nodes`."""
        check_edges(nodes, self.bounds)
        check_keys(nodes)
        ordered = in_order(nodes)
        stored = await self._repo.store_workflow(workflow_id, name, digest, ordered)
        if not stored.is_same:
            raise WorkflowExists(
                f"workflow_id {workflow_id} already belongs to another workflow. Use a new one for new work."
            )
        ids = dict(zip((node.name for node in ordered), stored.job_ids, strict=True))
        if stored.is_new:
            new = [node.job._replace(id=ids[node.name]) for node in ordered]
            roots = [job for job, node in zip(new, ordered, strict=True) if not node.after]
            self._publisher.stored(new, roots)
        return stored._replace(job_ids=[ids[node.name] for node in nodes])

    async def add(self, claim: Claim, nodes: Sequence[NewNode]) -> Addition:
        """Add jobs to the workflow of a running job. Jobs whose names exist are left out."""
        check_edges(nodes, self.bounds)
        check_addition(nodes)
        check_keys(nodes)
        addition = await self._repo.add_to_workflow(claim, nodes, self.bounds)
        if addition.problem == "lost":
            jobs = await self._job_repo.look_up_jobs([claim.job_id])
            raise lost(claim, jobs.get(claim.job_id))
        if addition.problem is not None:
            raise InvalidTransition(claim.job_id, _why_not(addition, claim, self.bounds))
        if claim.job_id in addition.job_ids:
            own = nodes[addition.job_ids.index(claim.job_id)].name
            raise InvalidTransition(
                claim.job_id, f"{own!r} is the name of the running job in its workflow. Give another name."
            )
        if addition.added:
            new = [node.job._replace(id=job_id) for node, job_id in zip(nodes, addition.job_ids, strict=True)]
            # A settler decides when they are ready.
            self._publisher.stored(new)
            self._settler.loop.nudge()
        return addition

    async def get(self, workflow_id: str, wait: timedelta = timedelta()) -> Workflow:
        """The workflow, as soon as it has ended; after `wait` at the latest."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        with self._settler.awaiting(workflow_id) as ended:
            while True:
                workflow = await self._repo.get_workflow(workflow_id)
                if workflow is None:
                    raise WorkflowNotFound(workflow_id)
                left = deadline - loop.time()
                if workflow.finished_at is not None or left <= 0:
                    return workflow
                ended.clear()
                try:
                    await asyncio.wait_for(ended.wait(), min(left, WAIT_LOOK.total_seconds()))
                except TimeoutError:
                    continue

    async def list(self, name: str | None, status: str | None, *, limit: int, token: str) -> Page[Workflow]:
        return await page_of(
            lambda count, after: self._repo.list_workflows(name, status, limit=count, after=after),
            limit,
            token,
            key=lambda workflow: PageKey(workflow.submitted_at, workflow.id),
            weight=lambda workflow: len(workflow.name) * 4,
        )

    async def jobs(
        self,
        workflow_id: str | None,
        *,
        parents_of: str | None,
        names: Sequence[str] | None,
        unended: bool,
        results: bool,
        after: int,
        limit: int,
    ) -> tuple[str, Page[Node]]:
        """The jobs after this number: of the workflow, or the parents of a job. The token is a number."""
        if parents_of is not None:
            workflow_id = await self._repo.find_workflow_job(parents_of)
            if workflow_id is None:
                job = await self._jobs.get(parents_of)
                raise InvalidTransition(
                    job.id, f"Job {job.id} belongs to no workflow: it waits for no other job."
                )
        assert workflow_id is not None
        nodes = await self._repo.list_workflow_jobs(
            workflow_id,
            child=parents_of,
            names=names,
            unended=unended,
            results=results,
            after=after,
            limit=limit + 1,
        )
        if not nodes and await self._repo.get_workflow(workflow_id) is None:
            raise WorkflowNotFound(workflow_id)
        count = fitting(map(_weight, nodes[:limit])) if nodes else 0
        token = str(nodes[count - 1].number) if count < len(nodes) else ""
        return workflow_id, Page(nodes[:count], token)

    async def cancel(self, workflow_id: str, reason: str) -> tuple[Workflow, int]:
        """Let no further job become ready, and cancel those that have not ended.

        Returns how many did not wait for other jobs. The others are canceled by a settler.

        No job starts after the first commit, except those that workers have: they get a stop, and drop
        what has not started. A job whose row another session has locked is canceled as any job is.
        """
        answer = await self._repo.cancel_workflow(workflow_id, reason)
        for ended in _batches(answer.jobs):
            self._job_publisher.canceled(ended, reason)
            await asyncio.sleep(0)  # serve other calls
        canceled = len(answer.jobs)
        for left in _batches(answer.left):
            canceled += len(await self._jobs.cancel_all(left, reason))
        if answer.is_canceled:
            await self._settle()
        return await self.get(workflow_id), canceled

    async def retry(self, workflow_id: str, attempts: int, *, at_once: bool = False) -> tuple[Workflow, int]:
        """Let jobs that did not succeed run again. Returns how many. Completed jobs do not run again."""
        await self.get(workflow_id)
        retried = await self._repo.retry_workflow(workflow_id, attempts, at_once=at_once)
        for some in _batches(retried):
            self._job_publisher.retried(some)
            await asyncio.sleep(0)  # serve other calls
        await self._settle()
        return await self.get(workflow_id), len(retried)

    async def _settle(self) -> None:
        """Let the answer show what has changed; a large workflow, or one that another server has, later."""
        for _ in range(SETTLES_OF_A_CALL):
            if not (await self._settler.settle()).is_more:
                return
        self._settler.loop.nudge()


def _batches(jobs: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(jobs), bounds.MAX_BATCH_SIZE):
        yield jobs[begin : begin + bounds.MAX_BATCH_SIZE]


def _weight(node: Node) -> int:
    texts = len(node.name) + len(node.topic) + len(node.last_error or "")
    return _NODE_BYTES + 4 * texts + 5 * len(node.parents) + len(node.result or b"")


def _why_not(addition: Addition, claim: Claim, most: WorkflowBounds) -> str:
    names = shown(addition.names)
    match addition.problem:
        case "canceled":
            return f"Workflow {addition.workflow_id} was canceled: no job can be added to it."
        case "unknown":
            return f"The workflow has no job named {names}."
        case "late":
            return f"{names} no longer waits for other jobs, so that nothing can be put before it."
        case "cycle":
            return f"{names} waits for a job in `before`, so that the new job cannot wait for it: a cycle."
        case "taken":
            return f"Other jobs hold the unique keys of {names}. Nothing was added."
        case _:
            return (
                f"The workflow would have more than {most.jobs} jobs, or {most.edges} waits. "
                "Raise PULSE_MAX_WORKFLOW_JOBS of pulsed."
            )
