"""Reads all jobs of a workflow, and watches it until it has ended."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.failures import FAILED, Failure
from pulse_cli.output import Output
from pulse_cli.terminal import QUIET, Cell, Line, cut_line, make_console, print_lines, styled
from pulse_cli.views.workflows import describe_workflow, workflow_shape, workflow_status_cell
from pulse_text.workflows import progress

if TYPE_CHECKING:
    from pulse import SyncPulse, WorkflowInfo, WorkflowJob


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
