"""`pulse workflows`: list, get, watch, cancel and retry; workflows as rows and as a tree of their jobs.

In the tree a job is below its last parent, and equal jobs share a line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from string import digits
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.connection import connected
from pulse_cli.declaring import Group
from pulse_cli.failures import FAILED, Failure
from pulse_cli.inputs import (
    WholeNumber,
    confirm,
    once_option,
    paging_options,
    reason_here,
    reason_option,
    workflow_id,
)
from pulse_cli.output import (
    Output,
    Shape,
    View,
    blank,
    collect,
    facts,
    heading,
    hint_at_more,
    output_here,
    time_shape,
)
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Line,
    Row,
    age,
    cut_line,
    lay_out,
    make_console,
    now,
    print_lines,
    styled,
    table_width,
    without_empty,
)
from pulse_cli.tuning import TREE_LINES
from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS
from pulse_text.times import format_duration
from pulse_text.workflows import KINDS, STATUSES, LinkedJob, equality_keys, kind, progress, state

if TYPE_CHECKING:
    import pulse
    from pulse import SyncPulse, WorkflowInfo, WorkflowJob


@click.group(
    cls=Group,
    examples="""
        pulse workflows list --status failed
        pulse workflows get 0199c0de-0000-7000-8000-000000000001
        pulse workflows watch 0199c0de-0000-70
        pulse workflows retry 0199c0de-0000-70
    """,
)
def workflows() -> None:
    """List, show, watch, cancel and retry workflows: jobs that wait for jobs.

    A workflow may be given by a prefix of its id that no other one shares. A prefix is looked for among
    the newest 1,000 workflows.
    """


@workflows.command(
    "list",
    examples="""
        pulse workflows list
        pulse workflows list --status running
        pulse workflows list --name nightly --limit 7
        pulse workflows list --status failed --output plain | cut -f1
    """,
)
@once_option(
    "--status",
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only workflows with this status.",
)
@once_option("--name", help="Only workflows of this name.")
@paging_options
def list_workflows(
    status: str | None, name: str | None, limit: int, everything: bool, cursor: str | None
) -> None:
    """List workflows, newest first."""
    with connected() as client:
        found, more = collect(
            lambda size, at: client.workflows.list(limit=size, cursor=at, name=name, status=status),
            limit,
            everything,
            cursor,
        )
    same = [*(["NAME"] if name else []), *(["STATUS"] if status else [])]
    output_here().show_list(found, workflow_view().without(*same), _nothing(status, name))
    hint_at_more(more)


@workflows.command(
    "get",
    examples="""
        pulse workflows get 0199c0de-0000-7000-8000-000000000001
        pulse workflows get 0199c0de-0000-70 --all | grep failed
        pulse workflows get 0199c0de-0000-70 --output json | jq '.job_list[] | select(.outcome == "failed")'
    """,
)
@click.argument("workflow", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="A line for each job.")
def get(workflow: str, everything: bool) -> None:
    """Show a workflow and the tree of its jobs.

    Each job is below the job that it waits for. A job that waits for several is below the last of them,
    and names them. Ten or more equal jobs share a line with their counts; in a tree of more than 200
    lines two do. JSON has every job.
    """
    with connected() as client:
        found = client.workflows.get(workflow_id(client, workflow))
        jobs = jobs_of(client, found.id)
    height = None if everything else TREE_LINES
    output_here().show_one(
        whole_workflow_shape(found, jobs),
        lambda: describe_workflow(found, jobs, width=table_width(), height=height),
    )


@workflows.command("watch", examples="pulse workflows watch 0199c0de-0000-70")
@click.argument("workflow", metavar="ID")
def watch(workflow: str) -> None:
    """Show a workflow and its jobs until it has ended.

    The exit code is 0 if it succeeded, and 1 if it failed or was canceled. In a pipe it prints the counts
    whenever they change, and the jobs at the end. JSON has the counts only, an object per line.
    """
    with connected() as client:
        watch_workflow(client, workflow_id(client, workflow), output_here())


@workflows.command(
    "cancel",
    examples="""
        pulse workflows cancel 0199c0de-0000-7000-8000-000000000001 --reason 'wrong day'
        pulse workflows cancel 0199c0de-0000-70 --yes
    """,
)
@click.argument("workflow", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--reason", default="", help="The reason, stored with the jobs.")
def cancel(workflow: str, yes: bool, reason: str) -> None:
    """Cancel a workflow: its jobs that have not ended. Running handlers are asked to stop.

    No further job of it starts, whatever its condition. Jobs that have ended stay as they are.
    """
    with connected() as client:
        found = client.workflows.get(workflow_id(client, workflow))
        if found.finished_at is not None:
            raise Failure(f"{_called(found)} has ended: it is {found.status}. Nothing was canceled.")
        jobs = _jobs(found.unfinished, "unfinished ")
        confirm(f"Cancel {_called(found)} with {jobs}?", yes=yes)
        after = client.workflows.cancel(found.id, reason)
    output_here().show_done(
        f"Canceled {_called(found)} with {jobs}. Retry it with: pulse workflows retry {found.id}",
        workflow_shape(after),
    )


@workflows.command(
    "retry",
    examples="""
        pulse workflows retry 0199c0de-0000-7000-8000-000000000001
        pulse workflows retry 0199c0de-0000-70 --attempts 3
    """,
)
@click.argument("workflow", metavar="ID")
@click.option("--attempts", type=WholeNumber(min=1), metavar="N", help="The number of further attempts.")
@click.option("--now", is_flag=True, help="Start canceled jobs now, also if they were to start later.")
@reason_option
def retry(workflow: str, attempts: int | None, now: bool) -> None:
    """Retry the dead-lettered and canceled jobs of a workflow, and the jobs that wait for them.

    Completed jobs do not run again. A canceled job that never started keeps its later start time.
    """
    with connected() as client:
        before = client.workflows.get(workflow_id(client, workflow))
        after = client.workflows.retry(before.id, attempts, now=now, reason=reason_here())
    count = before.failed + before.canceled
    sentence = f"Retried {_called(before)} with {_jobs(count)} that failed or {_was(count)} canceled."
    if not count:
        sentence = f"Nothing to retry: no job of {_called(before)} failed or was canceled."
    output_here().show_done(f"{sentence} Completed jobs do not run again.", workflow_shape(after))


def _called(workflow: pulse.WorkflowInfo) -> str:
    return f"{workflow.name} ({workflow.id})"


def _jobs(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}job" + ("" if count == 1 else "s")


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _nothing(status: str | None, name: str | None) -> str:
    if not status and not name:
        return "There are no workflows yet. A program starts one with: async with p.workflow(NAME) as flow"
    kind = f"{status} workflows" if status else "workflows"
    named = f" named {name!r}" if name else ""
    return f"There are no {kind}{named}. `pulse workflows list` shows all."


# ---------------------------------------------------------------- watching


def jobs_of(client: SyncPulse, workflow_id: str) -> list[WorkflowJob]:
    """Return all jobs of a workflow, in the order of their numbers."""
    return list(client.workflows.iter_jobs(workflow_id, page_size=tuning.LARGEST_PAGE))


def watch_workflow(client: SyncPulse, workflow_id: str, output: Output) -> None:
    """Show a workflow until it has ended. Raises a Failure unless it succeeded."""
    watch = _watch_in_place if output.can_redraw else _watch_in_lines
    if watch(client, workflow_id, output).status != "succeeded":
        raise Failure("", FAILED)  # the result has been printed


def _watch_in_lines(client: SyncPulse, workflow_id: str, output: Output) -> WorkflowInfo:
    """Print the counts whenever they change, and for people the jobs at the end."""
    shown: WorkflowInfo | None = None
    workflow = client.workflows.get(workflow_id)
    while True:
        if workflow != shown:
            _print_counts(workflow, output)
            shown = workflow
        if workflow.finished_at is not None:
            break
        workflow = _next(client, workflow_id, tuning.WAIT_LONGEST_SECONDS)
    if output.is_for_people:
        click.echo()
        print_lines(describe_workflow(workflow, jobs_of(client, workflow_id), width=None))
    return workflow


def _print_counts(workflow: WorkflowInfo, output: Output) -> None:
    if output.is_for_people:
        print_lines([[workflow_status_cell(workflow.status), Cell(f": {progress(workflow)}")]])
    elif output.form == "plain":
        click.echo(f"{workflow.id}\t{workflow.status}\t{progress(workflow)}")
    else:
        output.show_shape(workflow_shape(workflow))


def _watch_in_place(client: SyncPulse, workflow_id: str, output: Output) -> WorkflowInfo:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    workflow = client.workflows.get(workflow_id)
    jobs: list[WorkflowJob] = []
    with Live(console=console, auto_refresh=False) as live:
        while True:
            started = time.monotonic()
            footer = Cell("Ctrl-C ends it; the workflow continues", QUIET)
            try:
                jobs = jobs_of(client, workflow_id)
            except pulse.Unavailable as error:
                footer = Cell(error.message, "red")
            is_over = workflow.finished_at is not None
            lines = _frame(workflow, jobs, None if is_over else console.height - 1, console.width)
            live.update(Group(*map(styled, lines if is_over else [*lines, [footer]])), refresh=True)
            if is_over:
                return workflow
            pause = max((time.monotonic() - started) / tuning.WATCH_SHARE, tuning.WAIT_LONGEST_SECONDS)
            try:
                workflow = _next(client, workflow_id, pause)
            except pulse.Unavailable:
                time.sleep(tuning.WAIT_LONGEST_SECONDS)


def _frame(workflow: WorkflowInfo, jobs: list[WorkflowJob], height: int | None, width: int) -> list[Line]:
    if height is None:
        return describe_workflow(workflow, jobs, width=width)
    facts = len(describe_workflow(workflow, [], width=width)) + 2
    lines = describe_workflow(workflow, jobs, width=width, height=max(height - facts, 2))
    return [cut_line(line, width) for line in lines[:height]]


def _next(client: SyncPulse, workflow_id: str, seconds: float) -> WorkflowInfo:
    """Return the workflow when it has ended, or after this time."""
    import pulse

    try:
        return client.workflows.handle(workflow_id).wait(timedelta(seconds=seconds))
    except pulse.ResultTimeout:
        return client.workflows.get(workflow_id)


# ---------------------------------------------------------------- views

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
    "id",
    "name",
    "status",
    "jobs",
    "unfinished",
    "succeeded",
    "failed",
    "canceled",
    "skipped",
    "submitted_at",
    "finished_at",
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


# ---------------------------------------------------------------- the tree

_LEVELS_WIDTH = 30
"""Characters of the lines at the left of a name. A chain of a hundred jobs would leave no space for names."""
_AFTER_NAMED = 3
_SEPARATORS = "-_/.:# "


class Node(LinkedJob, Protocol):
    """A job, as far as the tree depends on it."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Node)


@dataclass(frozen=True, slots=True)
class Branch(Generic[J]):
    """One line of the tree: a job, or several equal jobs."""

    jobs: tuple[J, ...]
    lead: str
    """The lines of the tree on the left of its name."""
    below: str
    """The same on the left of further lines about these jobs."""
    after: str
    """The labels of its parents. Empty if it has only one: the tree shows that one."""

    @property
    def label(self) -> str:
        """`load`, or `page × 10,000`."""
        return _label(self.jobs)


def tree(jobs: Sequence[J], fold_from: int | None) -> list[Branch[J]]:
    """Return the lines of the tree, parents before children.

    `fold_from` equal jobs or more share a line; None: each job has its own.
    """
    groups = [(job,) for job in jobs] if fold_from is None else _folded(jobs, fold_from)
    group_of = {job.number: at for at, group in enumerate(groups) for job in group}
    parents = [
        sorted({group_of[number] for job in group for number in job.parents if number in group_of})
        for group in groups
    ]
    children: list[list[int]] = [[] for _ in groups]
    for child, above in enumerate(parents):
        for parent in above:
            children[parent].append(child)
    return list(_walk(groups, parents, children))


def _walk(
    groups: Sequence[tuple[J, ...]], parents: Sequence[list[int]], children: Sequence[list[int]]
) -> Iterator[Branch[J]]:
    left = [len(above) for above in parents]
    roots = [at for at, count in enumerate(left) if count == 0]
    # A stack, because a chain may be longer than Python's limit of recursion.
    open_lines = [(root, "", "") for root in reversed(roots)]
    while open_lines:
        at, lead, below = open_lines.pop()
        placed = []
        for child in children[at]:
            left[child] -= 1
            if left[child] == 0:
                placed.append(child)
        above = parents[at]
        after = _after_labels([_label(groups[parent]) for parent in above]) if len(above) > 1 else ""
        yield Branch(groups[at], _cut(lead), _cut(below), after)
        for child in reversed(placed):
            is_last = child == placed[-1]
            open_lines.append(
                (child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  "))
            )


def _cut(lead: str) -> str:
    return lead if len(lead) <= _LEVELS_WIDTH else "… " + lead[2 - _LEVELS_WIDTH :]


def _after_labels(labels: Sequence[str]) -> str:
    more = len(labels) - _AFTER_NAMED
    return ", ".join(labels[:_AFTER_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _label(jobs: Sequence[Node]) -> str:
    if len(jobs) == 1:
        return jobs[0].name
    shared = _shared_start([job.name for job in jobs])
    # page-10 to page-19 share the start of a number, load1-a and load1-b do not.
    stem = shared if shared[-1:] in _SEPARATORS else shared.rstrip(digits)
    return f"{stem.rstrip(_SEPARATORS) or jobs[0].topic} × {len(jobs):,}"


def _shared_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)  # the two that differ first
    differing = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, len(first))]


def _folded(jobs: Sequence[J], fold_from: int) -> list[tuple[J, ...]]:
    """Return the groups of equal jobs, in the order of their first jobs."""
    groups: dict[Hashable, list[J]] = {}
    for job, key in zip(jobs, equality_keys(jobs), strict=True):
        groups.setdefault(key, []).append(job)
    lines = [
        line
        for group in groups.values()
        for line in ([tuple(group)] if len(group) >= fold_from else [(job,) for job in group])
    ]
    return sorted(lines, key=lambda line: line[0].number)
