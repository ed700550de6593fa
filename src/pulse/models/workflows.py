"""Workflows as the verbs return them, and the jobs in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pulse.handlers.workflows import JobOutcome, When
from pulse.jobs.models import JobStatus
from pulse.messages import Items, Reader
from pulse.payload import decode_result


class WorkflowStatus(StrEnum):
    """The state of a workflow."""

    RUNNING = "running"
    """Some jobs have not ended."""
    SUCCEEDED = "succeeded"
    """All jobs have ended, and none failed."""
    FAILED = "failed"
    """All jobs have ended. One was dead-lettered, or canceled by an operator."""
    CANCELED = "canceled"
    """Canceled as a whole by an operator. Jobs that run are asked to stop, and end a moment later."""


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """A workflow, and how many of its jobs have ended in which way."""

    id: str
    name: str
    status: WorkflowStatus
    jobs: int
    """How many jobs it has."""
    unfinished: int
    """How many have not ended."""
    succeeded: int
    failed: int
    """Dead-lettered."""
    canceled: int
    """By an operator, or because a job that they waited for did not succeed."""
    skipped: int
    """Not needed. They do not count as failures."""
    submitted_at: datetime | None
    finished_at: datetime | None
    """When the last job ended. None: some have not ended."""
    canceled_at: datetime | None
    schedule_id: str | None
    """The schedule that started it."""


workflow_info = Reader(WorkflowInfo, id="workflow_id")
"""Returns the workflow in a `WorkflowView`."""


@dataclass(frozen=True, slots=True)
class WorkflowPage(Items[WorkflowInfo]):
    """One page of workflows, newest first."""

    workflows: tuple[WorkflowInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list`. None on the last page."""


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job of a workflow."""

    number: int
    """Its place in the workflow, from 1 on."""
    id: str
    name: str
    topic: str
    when: When
    state: str
    """waiting: for other jobs. ready: for none, whether it runs or has ended. dropped: canceled, because a
    job that it waited for did not succeed. skipped: not needed."""
    status: JobStatus | None
    """None: the job has been deleted."""
    outcome: JobOutcome | None
    """None: it has not ended."""
    parents: tuple[int, ...]
    """The numbers of the jobs that it waits for, or waited for."""
    unended_parents: int
    """How many of them have not ended."""
    attempts: int
    last_error: str | None
    """The error of the last failed attempt, or the reason of a cancel."""
    started_at: datetime | None
    finished_at: datetime | None
    next_run_at: datetime | None
    """While PENDING or RETRYING: the earliest start."""
    result_bytes: bytes | None = None
    """The stored result, if it was requested."""
    waits_for: str | None = None
    """The signals that its handler waits for, one in each line; "": it sleeps until `next_run_at`."""

    @property
    def result(self) -> Any:
        """The result, decoded as JSON; bytes that are not JSON stay bytes."""
        return None if self.result_bytes is None else decode_result(self.result_bytes)


workflow_job = Reader(
    WorkflowJob,
    id="job_id",
    unended_parents="unended",
    result_bytes="result",
    waits_for=lambda view: view.waiting.signal if view.HasField("waiting") else None,
)
"""Returns the job in a `WorkflowJobView`."""


@dataclass(frozen=True, slots=True)
class WorkflowJobPage(Items[WorkflowJob]):
    """One page of the jobs of a workflow, in the order of their numbers."""

    jobs: tuple[WorkflowJob, ...]
    next_cursor: str | None
    """Pass it to the next `jobs`. None on the last page."""
    workflow_id: str
