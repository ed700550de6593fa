"""Workflows: submit them, add to them, wait for them, cancel and retry them. ADR-0077

A settler lets their jobs start once the jobs that they wait for have ended. A publisher of its own announces
what is done to jobs of workflows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidTransition, PulseError, WorkflowExists, WorkflowNotFound
from pulse_server.base.ids import Page, PageKey, fitting, page_of
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.metrics import Metrics
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.roster import Roster
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import lost
from pulse_server.jobs.rules import Claim, JobStatus, Level
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.wakeups.watchers import Watchers, of_new, transition
from pulse_server.work.jobs import Jobs
from pulse_server.workflows.rules import (
    Addition,
    NewNode,
    Node,
    Settled,
    Stored,
    Workflow,
    WorkflowBounds,
    WorkflowsLocked,
    check_addition,
    check_edges,
    check_keys,
    in_order,
    shown,
)
from pulse_server.workflows.store import PostgresWorkflowRepo


class WorkflowPublisher:
    def __init__(self, metrics: Metrics, watchers: Watchers, roster: Roster) -> None:
        self._metrics = metrics
        self._watchers = watchers
        self._roster = roster

    def stored(self, jobs: Sequence[NewJob], roots: Sequence[NewJob] = ()) -> None:
        """Jobs of a workflow were stored. The roots wait for no other job."""
        self._metrics.count_topics(self._metrics.submitted, [job.topic for job in jobs])
        self._watchers.publish(lambda: [of_new(job.id, job.topic) for job in jobs])
        ready = [job for job in roots if job.may_be_ready]
        self._roster.jobs_ready({job.topic for job in ready}, jobs=len(ready))

    def ready(self, levels: Sequence[Level], jobs: int) -> None:
        """Jobs no longer wait for other jobs. Their status did not change."""
        self._roster.jobs_ready({level.topic for level in levels}, levels, jobs)

    def dropped(self, topic: str, job_ids: Sequence[str]) -> None:
        """A workflow canceled jobs that waited: their condition cannot hold any more."""
        self._metrics.canceled.add(self._metrics.topic(topic), by=len(job_ids))
        self._watchers.publish_ends(
            lambda: [transition(job_id, topic, JobStatus.CANCELED) for job_id in job_ids]
        )


# Each end of a job nudges the settler. A tick finds what a server left that died.
SETTLE_INTERVAL = timedelta(milliseconds=500)
# After a settle that left notices and did nothing: another server has their workflows.
SETTLE_PAUSE = timedelta(milliseconds=20)
# Bounds of one transaction. The first of many jobs start while others are let go.
SETTLE_WORKFLOWS = 100
SETTLE_NOTICES = 1000
SETTLE_ROUNDS = 50
SETTLE_JOBS = 1000
# How long a workflow that cannot be settled is left alone. The others go on.
FAILING_REST = timedelta(minutes=1)
# The same for a workflow of which another session of the database has locked a row.
LOCKED_REST = timedelta(seconds=2)

log = logging.getLogger(__name__)


class WorkflowSettler:
    """Each server has one. The row of a workflow is locked, so settlers of several servers do not meet."""

    def __init__(self, repo: PostgresWorkflowRepo, publisher: WorkflowPublisher) -> None:
        self._repo = repo
        self._publisher = publisher
        self._awaited: dict[str, set[asyncio.Event]] = {}
        # Workflows that could not be settled, and when they are tried again.
        self._failing: dict[str, float] = {}
        self.loop = Loop("workflows", self.tick, SETTLE_INTERVAL)

    @contextmanager
    def awaiting(self, workflow_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when this server finds that the workflow has ended."""
        ended = asyncio.Event()
        self._awaited.setdefault(workflow_id, set()).add(ended)
        try:
            yield ended
        finally:
            self._awaited[workflow_id].discard(ended)
            if not self._awaited[workflow_id]:
                del self._awaited[workflow_id]

    async def tick(self) -> timedelta:
        while True:
            settled = await self.settle()
            if not settled.is_more:
                return SETTLE_INTERVAL
            if not settled.did_something:
                return SETTLE_INTERVAL if self._failing else SETTLE_PAUSE

    async def settle(self) -> Settled:
        """Take some notices, let jobs start, and publish them.

        If that fails, or meets a lock, each workflow is settled alone: no workflow stops the others.
        """
        now = lease_clock()
        self._failing = {one: until for one, until in self._failing.items() if until > now}
        wanted = None
        if self._failing:
            wanted = [one for one in await self._noticed() if one not in self._failing]
        try:
            return await self._settle(wanted)
        except PulseError:  # of the database, not of a workflow
            raise
        except Exception as error:
            are_failing = await self._settle_each(wanted or await self._noticed())
            if not are_failing and not isinstance(error, WorkflowsLocked):  # a lock may be gone by now
                raise
        return Settled([], 0, {}, [], is_more=True)

    async def _settle_each(self, workflow_ids: Sequence[str]) -> bool:
        """Settle them one by one. Returns whether some of them fail."""
        are_failing = False
        for workflow_id in workflow_ids:
            try:
                await self._settle([workflow_id])
            except PulseError:
                raise
            except Exception as error:
                are_failing = True
                is_locked = isinstance(error, WorkflowsLocked)
                rest = LOCKED_REST if is_locked else FAILING_REST
                self._failing[workflow_id] = lease_clock() + rest.total_seconds()
                if not is_locked:  # who holds the lock is logged as lock_met
                    log.exception(
                        "workflow_failing", extra={"workflow_id": workflow_id, "reason": str(error)}
                    )
        return are_failing

    async def _noticed(self) -> list[str]:
        # More than the failing ones: a hundred of them, which come first, hide no other.
        return await self._repo.noticed_workflows(SETTLE_WORKFLOWS + len(self._failing))

    async def _settle(self, wanted: Sequence[str] | None) -> Settled:
        sent_at = lease_clock()
        settled = await self._repo.settle_workflows(
            workflows=SETTLE_WORKFLOWS,
            notices=SETTLE_NOTICES,
            rounds=SETTLE_ROUNDS,
            jobs=SETTLE_JOBS,
            wanted=wanted,
        )
        self._publish(settled, lease_clock() - sent_at)
        return settled

    def _publish(self, settled: Settled, seconds: float) -> None:
        if settled.ready:
            levels = [level._replace(age_seconds=level.age_seconds + seconds) for level in settled.levels]
            self._publisher.ready(levels, settled.ready)
        for topic, job_ids in settled.dropped.items():
            self._publisher.dropped(topic, job_ids)
        for workflow_id in settled.finished:
            for ended in self._awaited.get(workflow_id, ()):
                ended.set()


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
        settler: WorkflowSettler,
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
