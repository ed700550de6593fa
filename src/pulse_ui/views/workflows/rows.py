"""The lists of workflows and of their jobs, as tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_ui import words
from pulse_ui.views.workflows import states
from pulse_ui.views.workflows.bars import Part, bar

STATUSES: Mapping[str, tuple[str, str, str]] = {
    "running": ("▶", "Running", "running"),
    "succeeded": ("✓", "Succeeded", "completed"),
    "failed": ("✕", "Failed", "dead_lettered"),
    "canceled": ("–", "Canceled", "canceled"),
}
"""The mark, the name and the class of each status of a workflow."""
_STYLES = {
    "succeeded": "completed",
    "failed": "dead_lettered",
    "canceled": "canceled",
    "skipped": "skipped",
}
"""The class of each outcome in the bar."""
_PARENTS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Progress:
    parts: tuple[Part, ...]
    """In percent."""
    text: str
    """9,123 of 10,003 jobs ended, 3 failed."""


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    workflow: pulse.WorkflowInfo
    name: str
    mark: str
    status: str
    style: str
    progress: Progress
    took: float | None
    """Seconds from its submission to its end, or to now."""


def workflow_row(workflow: pulse.WorkflowInfo, now: datetime) -> WorkflowRow:
    # A later pulsed may know other statuses.
    mark, status, style = STATUSES.get(workflow.status, ("·", workflow.status, ""))
    took = None
    if workflow.submitted_at is not None:
        took = max(0.0, ((workflow.finished_at or now) - workflow.submitted_at).total_seconds())
    return WorkflowRow(
        workflow, printable.one_line(workflow.name), mark, status, style, progress_of(workflow), took
    )


def progress_of(workflow: pulse.WorkflowInfo) -> Progress:
    """Return the progress: the bar by outcome, and the same in words."""
    counts = {name: int(getattr(workflow, name)) for name in _STYLES}
    by_style = {_STYLES[name]: number for name, number in counts.items()}
    ended = workflow.jobs - workflow.unfinished
    others = [
        f"{words.count(number)} {name}" for name, number in counts.items() if number and name != "succeeded"
    ]
    text = f"{words.count(ended)} of {words.plural(workflow.jobs, 'job')} ended"
    parts = bar(by_style, workflow.jobs, width=100, least=1)
    return Progress(parts, ", ".join([text, *others]))


@dataclass(frozen=True, slots=True)
class Parent:
    name: str
    job_id: str


@dataclass(frozen=True, slots=True)
class WorkflowJobRow:
    job: pulse.WorkflowJob
    name: str
    kind: str
    mark: str
    status: str
    detail: str
    condition: str
    """When it runs, if not after successes alone."""
    parents: tuple[Parent, ...]
    """The first of the jobs that it waits for, or waited for."""
    more_parents: int
    took: float | None
    is_deleted: bool


def job_row(job: pulse.WorkflowJob, jobs: Mapping[int, pulse.WorkflowJob], now: datetime) -> WorkflowJobRow:
    """Return the row of a job. `jobs` are those of its workflow, by number."""
    kind = states.kind_of(job)
    parents = [jobs[number] for number in job.parents[:_PARENTS_NAMED] if number in jobs]
    return WorkflowJobRow(
        job=job,
        name=printable.one_line(job.name),
        kind=kind.lower(),
        mark=states.MARKS[kind],
        status=states.NAMES[kind],
        detail=_beside_the_status(job, kind, now),
        condition=states.CONDITIONS.get(job.when, ""),
        parents=tuple(Parent(printable.one_line(parent.name), parent.id) for parent in parents),
        more_parents=len(job.parents) - len(parents),
        took=states.took(job, now),
        is_deleted=not job.status,
    )


def _beside_the_status(job: pulse.WorkflowJob, kind: str, now: datetime) -> str:
    said, reason = states.brief(job, now), states.reason_of(job)
    match kind:
        case states.WAITING:
            return said.removeprefix("waits ")
        case "PENDING":
            return said
        case "RETRYING":
            return ", ".join(filter(None, (said.removeprefix("retrying "), reason)))
        case _:
            return reason
