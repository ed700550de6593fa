"""What random walks expect of workflows. The model settles them with each end of a job, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import LIVE, Claim, Job, JobStatus
from pulse_server.workflows.rules import (
    Addition,
    CanceledWorkflow,
    NewNode,
    Node,
    Settled,
    Stored,
    When,
    Workflow,
    WorkflowBounds,
)
from tests.model.jobs import WITHOUT_END, JobModel, new_row

_FAILED_PARENT = "A job that it waited for did not succeed."
_NOT_NEEDED = "Not needed: no job that it waited for failed."
_CANCELED = "Its workflow was canceled."


@dataclass(slots=True, eq=False)
class NodeRow:
    """A job of a workflow."""

    number: int
    job_id: str
    name: str
    condition: When
    parents: list[NodeRow] = field(default_factory=list)
    children: list[NodeRow] = field(default_factory=list)
    dropped: str | None = None
    """Why the workflow canceled the job: `dropped` or `skipped`."""
    outcome: str | None = None
    """How the job ended: `succeeded`, `failed`, `canceled` or `skipped`."""

    @property
    def unended(self) -> int:
        """How many of its parents have not ended."""
        return sum(parent.outcome is None for parent in self.parents)

    def wait_for(self, parent: NodeRow) -> None:
        if parent not in self.parents:
            self.parents.append(parent)
            parent.children.append(self)

    def verdict(self) -> str:
        """By the ends of its parents: waiting, ready, dropped or skipped."""
        outcomes = {parent.outcome for parent in self.parents}
        has_failed, is_unended = bool(outcomes & {"failed", "canceled"}), None in outcomes
        match self.condition:
            case When.SUCCEEDED if has_failed:
                return "dropped"
            case When.SUCCEEDED if "skipped" in outcomes:
                return "skipped"
            case When.FAILED if not is_unended and not has_failed:
                return "skipped"
        return "waiting" if is_unended else "ready"


@dataclass(slots=True, eq=False)
class WorkflowRow:
    """A workflow. The number of a node is its place, from 1 on."""

    id: str
    submitted_at: datetime
    nodes: list[NodeRow] = field(default_factory=list)
    finished_at: datetime | None = None
    canceled_at: datetime | None = None

    def find(self, name: str) -> NodeRow | None:
        return next((node for node in self.nodes if node.name == name), None)

    def connect(self, nodes: Sequence[NewNode]) -> None:
        """Let the new jobs wait for the jobs in `after`, and the jobs in `before` for them."""
        rows = {row.name: row for row in self.nodes}
        for node in nodes:
            for parent in node.after:
                rows[node.name].wait_for(rows[parent])
            for child in node.before:
                rows[child].wait_for(rows[node.name])


class WorkflowModel(JobModel):
    """Jobs with workflows. `notices`: their jobs that ended or came back, and are not settled yet."""

    def __init__(self) -> None:
        super().__init__()
        self.workflows: dict[str, WorkflowRow] = {}
        self.notices: dict[str, None] = {}

    async def store_workflow(
        self, workflow_id: str, name: str, digest: bytes, nodes: Sequence[NewNode]
    ) -> Stored:
        workflow = self.workflows[workflow_id] = WorkflowRow(workflow_id, self.now())
        for node in nodes:
            self._insert_node(workflow, node, is_held=bool(node.after))
        workflow.connect(nodes)
        return Stored(True, True, [node.job_id for node in workflow.nodes])

    async def add_to_workflow(
        self, claim: Claim, nodes: Sequence[NewNode], bounds: WorkflowBounds
    ) -> Addition:
        workflow = self.workflows[self.jobs[claim.job_id].workflow_id or ""]
        if workflow.canceled_at is not None:
            return Addition("canceled", (), workflow.id, [], 0)
        if self.held_by(claim) is None:
            return Addition("lost", (), workflow.id, [], 0)
        new = [node for node in nodes if workflow.find(node.name) is None]
        problem, names = self._problem_of(workflow, new)
        if problem is not None:
            return Addition(problem, names, workflow.id, [], 0)
        added = [self._insert_node(workflow, node, is_held=True) for node in new]
        workflow.connect(new)
        self.notices |= dict.fromkeys(row.job_id for row in added)
        self.settle()
        ids = [found.job_id for node in nodes if (found := workflow.find(node.name)) is not None]
        return Addition(None, (), workflow.id, ids, len(new))

    def _problem_of(self, workflow: WorkflowRow, new: Sequence[NewNode]) -> tuple[str | None, Sequence[str]]:
        """The problem of the addition, as in `Addition`, and the names of the jobs that cause it."""
        known = {row.name: row for row in workflow.nodes}
        parents = sorted({name for node in new for name in node.after} - {node.name for node in new})
        children = sorted({name for node in new for name in node.before})
        if late := [name for name in children if not self._waits(known[name])]:
            return "late", late
        below = _below([known[name] for name in children])
        if circular := [name for name in parents if known[name] in below]:
            return "cycle", circular
        return None, ()

    def _waits(self, node: NodeRow) -> bool:
        job = self.jobs[node.job_id]
        return job.held and job.status is JobStatus.PENDING

    def _insert_node(self, workflow: WorkflowRow, node: NewNode, *, is_held: bool) -> NodeRow:
        """Insert a job. One that waits has no time of its own before it waits no longer."""
        new = node.job._replace(id=new_id(), run_at=WITHOUT_END if is_held else None)
        self.jobs[new.id] = replace(new_row(new, self.now()), workflow_id=workflow.id, held=is_held)
        placed = NodeRow(len(workflow.nodes) + 1, new.id, node.name, node.when)
        workflow.nodes.append(placed)
        return placed

    async def cancel_workflow(self, workflow_id: str, reason: str) -> CanceledWorkflow:
        workflow = self.workflows[workflow_id]
        unended = [job for job in self._jobs_of(workflow) if job.status in LIVE]
        if not unended:
            return CanceledWorkflow(False, [], [])
        workflow.canceled_at = workflow.canceled_at or self.now()
        canceled = await self.cancel_jobs([job.id for job in unended if not job.held], reason)
        self.notices |= dict.fromkeys(job.id for job in unended if job.held)
        self.settle()
        return CanceledWorkflow(True, canceled, [])

    async def retry_workflow(self, workflow_id: str, attempts: int) -> list[Job]:
        workflow = self.workflows[workflow_id]
        was_canceled, workflow.canceled_at = workflow.canceled_at is not None, None
        dropped = {node.job_id for node in workflow.nodes if node.dropped}
        unsuccessful = [
            job.id
            for job in self._jobs_of(workflow)
            if job.status in (JobStatus.DEAD_LETTERED, JobStatus.CANCELED) and job.id not in dropped
        ]
        if was_canceled:
            for node in workflow.nodes:
                job = self.jobs[node.job_id]
                if node.dropped and job.held and job.status is JobStatus.CANCELED:
                    self._bring_back(job)
                    node.dropped = None
        # It settles them all: no job finds a parent ended that comes back, too.
        retried = await self.retry_jobs(unsuccessful, attempts)
        if was_canceled:
            self.notices |= dict.fromkeys(job.id for job in self._jobs_of(workflow) if job.held)
            self.settle()
        return retried

    def may_come_back(self, job: Job) -> bool:
        """Not if a settle would cancel the job again."""
        workflow = self.workflows.get(job.workflow_id or "")
        return not (job.held and workflow is not None and workflow.canceled_at is not None)

    async def settle_workflows(self, *, workflows: int, notices: int, rounds: int, jobs: int) -> Settled:
        """Each change was settled at once."""
        return Settled([], 0, {}, [], is_more=False)

    # --- settling

    def put(self, job: Job, **changes: object) -> Job:
        before = self.jobs.get(job.id, job)
        changed = super().put(job, **changes)
        if changed.workflow_id is not None and before.finished_at != changed.finished_at:
            self.notices[job.id] = None
        return changed

    def settle(self) -> None:
        while self.notices:
            seen = [self.jobs[job_id] for job_id in self.notices]
            self.notices.clear()
            # All outcomes before the first verdict: a job must not start because its parent, which
            # came back with it, still counts as ended.
            due: dict[str, tuple[WorkflowRow, NodeRow]] = {}
            for job in seen:
                workflow = self.workflows[job.workflow_id or ""]
                node = next(node for node in workflow.nodes if node.job_id == job.id)
                children = node.children if self._count(workflow, node, job) else []
                due |= {one.job_id: (workflow, one) for one in ([node] if job.held else []) + children}
            for job_id, (workflow, node) in due.items():
                self._judge(workflow, node, self.jobs[job_id])

    def _count(self, workflow: WorkflowRow, node: NodeRow, job: Job) -> bool:
        """Store how the job ended. Returns whether that is new."""
        before, node.outcome = node.outcome, _outcome(node, job)
        is_over = all(one.outcome is not None for one in workflow.nodes)
        if before != node.outcome:
            workflow.finished_at = self.now() if is_over else None
        return before != node.outcome

    def _judge(self, workflow: WorkflowRow, node: NodeRow, job: Job) -> None:
        """Let the job start, cancel it, or bring it back. A job that does not wait is left alone."""
        verdict = "dropped" if workflow.canceled_at is not None else node.verdict()
        was_dropped, is_live = node.dropped, job.finished_at is None
        is_final = verdict in ("dropped", "skipped")
        if not job.held:
            return
        if is_live and is_final:
            error = _NOT_NEEDED if verdict == "skipped" else _FAILED_PARENT
            self.finish(job, JobStatus.CANCELED)
            error = _CANCELED if workflow.canceled_at else error
            self.put(self.jobs[job.id], last_error=error, next_run_at=WITHOUT_END)
        elif verdict == "ready" and (is_live or was_dropped):
            self._open(job if was_dropped is None else replace(job, last_error=None))
        elif not is_live and was_dropped and verdict == "waiting":  # an operator's cancel stays
            self._bring_back(job)
        elif was_dropped is None or verdict == was_dropped:
            return
        node.dropped = verdict if is_final else None
        if was_dropped and node.dropped and was_dropped != node.dropped:
            self.notices[job.id] = None

    def _open(self, job: Job) -> None:
        now = self.now()
        self.put(job, status=JobStatus.PENDING, finished_at=None, held=False, ready=True, next_run_at=now)

    def _bring_back(self, job: Job) -> None:
        self.put(job, status=JobStatus.PENDING, finished_at=None, last_error=None, next_run_at=WITHOUT_END)

    # --- reads

    async def get_workflow(self, workflow_id: str) -> Workflow:
        row = self.workflows[workflow_id]
        ends = [node.outcome for node in row.nodes]
        failed, canceled = ends.count("failed"), ends.count("canceled")
        status = "failed" if failed + canceled else "succeeded"
        if row.finished_at is None:
            status = "running"
        return Workflow(
            id=row.id,
            name="",
            status=status if row.canceled_at is None else "canceled",
            jobs=len(row.nodes),
            unfinished=ends.count(None),
            succeeded=ends.count("succeeded"),
            failed=failed,
            canceled=canceled,
            skipped=ends.count("skipped"),
            submitted_at=row.submitted_at,
            finished_at=row.finished_at,
            canceled_at=row.canceled_at,
            schedule_id=None,
        )

    async def list_workflow_jobs(self, workflow_id: str, **asked: object) -> list[Node]:
        """All of them, whatever is asked."""
        return [self._as_read(row) for row in self.workflows[workflow_id].nodes]

    def _as_read(self, row: NodeRow) -> Node:
        job = self.jobs[row.job_id]
        return Node(
            number=row.number,
            job_id=row.job_id,
            name=row.name,
            topic=job.topic,
            condition=row.condition.value,
            dropped=row.dropped,
            outcome=row.outcome,
            unended=row.unended,
            status=job.status.value,
            held=job.held or None,
            attempts=job.attempts,
            started_at=job.started_at,
            finished_at=job.finished_at,
            next_run_at=None,
            waits_for=job.waits_for,
            last_error=job.last_error,
            result=job.result,
            parents=sorted(parent.number for parent in row.parents),
        )

    def _jobs_of(self, workflow: WorkflowRow) -> list[Job]:
        return [self.jobs[node.job_id] for node in workflow.nodes]


def _outcome(node: NodeRow, job: Job) -> str | None:
    if job.status is JobStatus.COMPLETED:
        return "succeeded"
    if job.status is JobStatus.DEAD_LETTERED:
        return "failed"
    if job.status is JobStatus.CANCELED:
        return "skipped" if node.dropped == "skipped" else "canceled"
    return None


def _below(rows: Sequence[NodeRow]) -> set[NodeRow]:
    """The rows, and all that wait for them."""
    found: set[NodeRow] = set()
    left = list(rows)
    while left:
        row = left.pop()
        if row not in found:
            found.add(row)
            left += row.children
    return found
