"""Workflows as rows, as a tree of their jobs, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli import tuning
from pulse_cli.output import Shape, View, blank, facts, heading, time_shape
from pulse_cli.terminal import QUIET, Cell, Column, Line, Row, age, lay_out, now, without_empty
from pulse_cli.views.workflow_tree import Branch, tree
from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS
from pulse_text.times import format_duration
from pulse_text.workflows import KINDS, kind, progress, state

if TYPE_CHECKING:
    import pulse

_STATUS_STYLES = {"running": "blue", "succeeded": "green", "failed": "red", "canceled": QUIET}
_MARKS_AND_STYLES = {
    # In this order: of several equal jobs, the first kind that occurs gives the mark.
    "failed": (STATUS_MARKS["DEAD_LETTERED"], "red"),
    "running": (STATUS_MARKS["RUNNING"], "blue"),
    "retrying": (STATUS_MARKS["RETRYING"], "yellow"),
    "suspended": (STATUS_MARKS["PENDING"], "cyan"),
    "ready": (STATUS_MARKS["PENDING"], "cyan"),
    "delayed": (STATUS_MARKS["PENDING"], "cyan"),
    "waiting": (STATUS_MARKS["PENDING"], QUIET),
    "canceled": (STATUS_MARKS["CANCELED"], QUIET),
    "done": (STATUS_MARKS["COMPLETED"], "green"),
    "skipped": (STATUS_MARKS["CANCELED"], QUIET),
}
_CONDITIONS = {"failed": "on failure", "always": "in any case"}
_FIELDS = (
    *("id", "name", "status", "jobs", "unfinished", "succeeded", "failed", "canceled", "skipped"),
    *("submitted_at", "finished_at"),
)


def workflow_shape(workflow: pulse.WorkflowInfo) -> Shape:
    """A workflow in a list."""
    return {
        "id": workflow.id,
        "name": workflow.name,
        "status": str(workflow.status),
        "jobs": workflow.jobs,
        "unfinished": workflow.unfinished,
        "succeeded": workflow.succeeded,
        "failed": workflow.failed,
        "canceled": workflow.canceled,
        "skipped": workflow.skipped,
        "submitted_at": time_shape(workflow.submitted_at),
        "finished_at": time_shape(workflow.finished_at),
        "canceled_at": time_shape(workflow.canceled_at),
        "schedule_id": workflow.schedule_id,
    }


def whole_workflow_shape(workflow: pulse.WorkflowInfo, jobs: Iterable[pulse.WorkflowJob]) -> Shape:
    """A workflow on its own: with its jobs."""
    return workflow_shape(workflow) | {"job_list": [_job_shape(job) for job in jobs]}


def _job_shape(job: pulse.WorkflowJob) -> Shape:
    return {
        "number": job.number,
        "id": job.id,
        "name": job.name,
        "topic": job.topic,
        "when": job.when,
        "state": job.state,
        "status": None if job.status is None else str(job.status),
        "outcome": job.outcome,
        "parents": list(job.parents),
        "unended_parents": job.unended_parents,
        "attempts": job.attempts,
        "last_error": job.last_error,
        "started_at": time_shape(job.started_at),
        "finished_at": time_shape(job.finished_at),
        "next_run_at": time_shape(job.next_run_at),
        "waits_for": job.waits_for,
    }


def workflow_status_cell(status: str) -> Cell:
    """Return the status of a workflow with its color."""
    return Cell(str(status), _STATUS_STYLES.get(status, ""))


def workflow_view() -> View[pulse.WorkflowInfo]:
    """Return the view of a list of workflows."""
    present = now()

    def row(workflow: pulse.WorkflowInfo) -> Row:
        return [
            Cell(workflow.id),
            Cell(printable.one_line(workflow.name)),
            workflow_status_cell(workflow.status),
            Cell(progress(workflow)),
            Cell(age(workflow.submitted_at, present)),
            Cell(_took(workflow) or "–", "" if workflow.finished_at else QUIET),
        ]

    columns = (
        Column("ID"),
        Column("NAME", shortest=8, drop=1),
        Column("STATUS"),
        Column("PROGRESS", shortest=12, drop=2),
        Column("AGE", right=True, drop=3),
        Column("TOOK", right=True, drop=4),
    )
    return View(columns, row, workflow_shape, _FIELDS)


def describe_workflow(
    workflow: pulse.WorkflowInfo,
    jobs: Sequence[pulse.WorkflowJob],
    *,
    width: int | None,
    height: int | None = tuning.TREE_LINES,
) -> list[Line]:
    """Return the description of a workflow, at most `height` lines about its jobs; None: every job."""
    present = now()
    lines: list[Line] = [
        [Cell(workflow.id, "bold"), Cell("  "), workflow_status_cell(workflow.status)],
        *facts(
            ("Name", workflow.name),
            ("Progress", progress(workflow)),
            ("Submitted", workflow.submitted_at),
            ("Canceled", workflow.canceled_at),
            ("Finished", workflow.finished_at),
            ("Took", _took(workflow)),
            ("Schedule", workflow.schedule_id),
            present=present,
        ),
    ]
    if jobs:
        lines += [blank(), heading("Jobs"), *_job_lines(jobs, present, width, height)]
    return lines


def _took(workflow: pulse.WorkflowInfo) -> str:
    if workflow.submitted_at is None or workflow.finished_at is None:
        return ""
    return format_duration(workflow.finished_at - workflow.submitted_at)


def _job_columns(width: int | None) -> tuple[Column, ...]:
    # The state keeps nearly half of the line before ids are shown.
    state_width = 12 if width is None else max(12, min(width * 2 // 5, 40))
    return (
        Column("JOB", shortest=16),
        Column("TOPIC", shortest=8, drop=2, optional=True),
        Column("STATE", shortest=state_width),
        Column("AFTER", shortest=24, drop=1, optional=True),
        Column("ID", drop=3, optional=True),
    )


def _job_lines(
    jobs: Sequence[pulse.WorkflowJob], present: datetime, width: int | None, height: int | None
) -> Iterator[Line]:
    branches = tree(jobs, None if height is None else tuning.FOLD_FROM)
    if height is not None and len(branches) > height:
        branches = tree(jobs, 2)
    hidden: list[pulse.WorkflowJob] = []
    if height is not None and len(branches) > height:
        hidden = [job for branch in branches[height - 1 :] for job in branch.jobs]
        branches = branches[: height - 1]
    rows = [row for branch in branches for row in _rows(branch, present)]
    yield from lay_out(*without_empty(_job_columns(width), rows), width)[1:]
    if hidden:
        yield [Cell(f"… and {len(hidden):,} more: {_counts(hidden, present)}", QUIET)]


def _rows(branch: Branch[pulse.WorkflowJob], present: datetime) -> Iterator[Row]:
    first = branch.jobs[0]
    if len(branch.jobs) == 1:
        yield _row(branch.lead, first, present, branch.after)
        return
    kinds = {kind(job, present) for job in branch.jobs}
    mark, style = next(shown for name, shown in _MARKS_AND_STYLES.items() if name in kinds)
    yield [
        Cell(f"{branch.lead}{mark} {printable.one_line(branch.label)}"),
        _topic(branch.label, first),
        Cell(_counts(branch.jobs, present), style),
        _after(branch.after, first),
        Cell(""),
    ]
    failed = [job for job in branch.jobs if kind(job, present) == "failed"]
    for job in failed[: tuning.SAMPLE_SHOWN]:
        yield _row(f"{branch.below}╎ ", job, present)
    if len(failed) > tuning.SAMPLE_SHOWN:
        more = f"{len(failed) - tuning.SAMPLE_SHOWN:,} more failed"
        yield [Cell(f"{branch.below}╎ …"), Cell(""), Cell(more, "red"), Cell(""), Cell("")]


def _row(lead: str, job: pulse.WorkflowJob, present: datetime, after: str = "") -> Row:
    mark, style = _MARKS_AND_STYLES[kind(job, present)]
    return [
        Cell(f"{lead}{mark} {printable.one_line(job.name)}"),
        _topic(job.name, job),
        Cell(state(job, present), style),
        _after(after, job),
        Cell(job.id, QUIET),
    ]


def _topic(name: str, job: pulse.WorkflowJob) -> Cell:
    """Return the topic, unless the name is the topic with a number or a word behind it."""
    rest = name.removeprefix(job.topic)
    is_in_name = name.startswith(job.topic) and not rest[:1].isalnum()
    return Cell("" if is_in_name else printable.one_line(job.topic), QUIET)


def _after(labels: str, job: pulse.WorkflowJob) -> Cell:
    parts = [f"after {printable.one_line(labels)}" if labels else "", _CONDITIONS.get(job.when, "")]
    return Cell(", ".join(part for part in parts if part), QUIET)


def _counts(jobs: Iterable[pulse.WorkflowJob], present: datetime) -> str:
    """Return `9,120 done, 3 failed, 877 waiting`."""
    counts = Counter(kind(job, present) for job in jobs)
    return ", ".join(f"{counts[name]:,} {name}" for name in KINDS if counts[name])
