"""The rows of workflows in memory, and the verdict on a job that waits. ADR-0077"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Job
from pulse_server.domain.workflows import When, Workflow


@dataclass(slots=True, eq=False)
class NodeRow:
    """A job of a workflow. Its own times count from the moment when it no longer waits."""

    number: int
    job_id: str
    name: str
    topic: str
    condition: When = When.SUCCEEDED
    run_at: datetime | None = None
    delay: timedelta | None = None
    start_within: timedelta | None = None
    parents: list[NodeRow] = field(default_factory=list)
    children: list[NodeRow] = field(default_factory=list)
    dropped: str | None = None
    """Why the workflow canceled the job: `dropped` or `skipped`."""
    was_dropped: bool = False
    """Whether the workflow had canceled the job when an operator retried it."""
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
    name: str
    digest: bytes
    schedule_id: str | None
    submitted_at: datetime
    nodes: list[NodeRow] = field(default_factory=list)
    finished_at: datetime | None = None
    canceled_at: datetime | None = None

    @property
    def edges(self) -> int:
        return sum(len(node.parents) for node in self.nodes)

    def find(self, name: str) -> NodeRow | None:
        return next((node for node in self.nodes if node.name == name), None)

    def as_read(self) -> Workflow:
        ends = [node.outcome for node in self.nodes]
        failed, canceled = ends.count("failed"), ends.count("canceled")
        status = "failed" if failed + canceled else "succeeded"
        if self.finished_at is None:
            status = "running"
        return Workflow(
            id=self.id,
            name=self.name,
            status=status if self.canceled_at is None else "canceled",
            jobs=len(self.nodes),
            unfinished=ends.count(None),
            succeeded=ends.count("succeeded"),
            failed=failed,
            canceled=canceled,
            skipped=ends.count("skipped"),
            submitted_at=self.submitted_at,
            finished_at=self.finished_at,
            canceled_at=self.canceled_at,
            schedule_id=self.schedule_id,
        )


@dataclass(slots=True)
class Unreported:
    """Changes by settles that no answer has named yet."""

    ready: list[Job] = field(default_factory=list)
    dropped: dict[str, list[str]] = field(default_factory=dict)
    workflows: dict[str, WorkflowRow] = field(default_factory=dict)
    """Workflows in which a job ended or came back."""
