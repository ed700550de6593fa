"""Refreshes a list or a job: in place on a terminal, one below the other in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.loops.wait import ChangeSignal
from pulse_cli.output import Output, View, table
from pulse_cli.terminal import QUIET, Cell, Line, make_console, styled
from pulse_cli.views.jobs import describe_job
from pulse_cli.views.steps import job_shape_with_steps

if TYPE_CHECKING:
    from pulse import AuditEntry, Explanation, JobInfo, StepInfo, SyncPulse, WorkflowInfo, WorkflowJob

T = TypeVar("T")


def watch_list(
    fetch: Callable[[], Sequence[T]],
    view: Callable[[], View[T]],
    empty: str,
    output: Output,
    interval: timedelta,
) -> None:
    """Show the result of `fetch` until Ctrl-C. An unavailable server is retried."""
    if output.is_for_people and sys.stdout.isatty():
        _watch_in_place(fetch, view, empty, interval)
    while True:
        output.show_list(fetch(), view(), empty)
        if output.form != "json":
            click.echo()
        time.sleep(interval.total_seconds())


def watch_job(client: SyncPulse, job_id: str, output: Output) -> None:
    """Show a job whenever it has changed, until it has finished. An unavailable server is retried."""
    signal = ChangeSignal(client, [job_id], progress=True)
    if output.is_for_people and sys.stdout.isatty():
        return _watch_job_in_place(client, job_id, signal)
    shown: object = None
    while True:
        details = job_details(client, job_id)
        job = details.job
        # The lease moves with each heartbeat.
        state = replace(job, lease_until=None), [parent.outcome for parent in details.parents]
        if state != shown:
            output.show_one(job_shape_with_steps(job, details.steps), partial(describe_job, *details))
            if output.form != "json":
                click.echo()
            shown = state
        if job.status.is_finished:
            return None
        signal.wait(tuning.WAIT_LONGEST_SECONDS)


def _watch_job_in_place(client: SyncPulse, job_id: str, signal: ChangeSignal) -> None:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    shown: list[Line] = []
    is_over = False
    with Live(console=console, auto_refresh=False) as live:
        while not is_over:
            footer = Cell("Ctrl-C ends it; the job continues", QUIET)
            try:
                details = job_details(client, job_id)
                is_over = details.job.status.is_finished
                shown = list(describe_job(*details))
            except pulse.Unavailable as error:
                footer = Cell(error.message, "red")
            lines = shown if is_over else [*shown[: max(console.height - 2, 1)], [footer]]
            live.update(Group(*map(styled, lines)), refresh=True)
            if not is_over:
                signal.wait(tuning.WAIT_LONGEST_SECONDS)


def _watch_in_place(
    fetch: Callable[[], Sequence[T]], view: Callable[[], View[T]], empty: str, interval: timedelta
) -> None:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    shown: list[Line] = []
    trouble = ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                things = fetch()
                shown = table(things, view()) if things else [[Cell(empty)]]
                trouble = ""
            except pulse.Unavailable as error:
                trouble = error.message
            height = max(console.height - 3, 1)
            lines = shown[:height]
            if len(shown) > height:
                lines.append([Cell(f"… and {len(shown) - height} more", QUIET)])
            footer = f"every {interval.total_seconds():g}s, Ctrl-C ends it"
            lines.append([Cell(trouble, "red")] if trouble else [Cell(footer, QUIET)])
            live.update(Group(*map(styled, lines)), refresh=True)
            time.sleep(interval.total_seconds())


class JobDetails(NamedTuple):
    """A job and what belongs to it, in the order in which `describe_job` takes it."""

    job: JobInfo
    steps: Sequence[StepInfo]
    workflow: WorkflowInfo | None
    parents: Sequence[WorkflowJob]
    """While it waits for other jobs: all jobs that it waits for, ended or not."""
    why: Explanation | None
    """While it is unfinished. None: the server is older, or the user may not ask."""
    canceled: AuditEntry | None = None
    """Of a canceled job: by which user and why. None: the server did it, or the user may not see it."""


def job_details(client: SyncPulse, job_id: str) -> JobDetails:
    """Return the job with its steps, workflow and parents, why it does not run, and its cancel."""
    import pulse

    job = client.get_job(job_id)
    steps = client.steps(job.id) if job.steps else []
    workflow, parents = None, []
    if job.workflow_id is not None:
        with suppress(pulse.NotFound):  # deleted meanwhile
            workflow = client.workflows.get(job.workflow_id)
            parents = list(client.workflows.iter_jobs(parents_of=job.id)) if job.waits_for_jobs else []
    why = explained(client, [job]).get(job.id)
    return JobDetails(job, steps, workflow, parents, why, _cancel_of(client, job))


def explained(
    client: SyncPulse, jobs: Iterable[JobInfo], warn: Callable[[str], None] = lambda _: None
) -> dict[str, Explanation]:
    """Return why the unfinished jobs do not run, by job: of the first 1,000.

    Empty if the server is older, or if the user may not ask. After any other error it has those until
    then, and `warn` is given a sentence: a list without reasons is better than none.
    """
    import pulse

    unfinished = [job.id for job in jobs if not job.status.is_finished][: tuning.MOST_EXPLAINED]
    found: dict[str, Explanation] = {}
    try:
        for begin in range(0, len(unfinished), tuning.EXPLAINED_AT_ONCE):
            ids = unfinished[begin : begin + tuning.EXPLAINED_AT_ONCE]
            found |= {why.job_id or "": why for why in client.explain_jobs(ids)}
    except (pulse.PermissionDenied, pulse.NotFound):
        return found
    except pulse.PulseError as error:
        if type(error) is not pulse.PulseError:  # an older server does not know the call
            warn(f"pulse: warning: why jobs wait cannot be shown: {error.message}")
    return found


def _cancel_of(client: SyncPulse, job: JobInfo) -> AuditEntry | None:
    import pulse

    if str(job.status) != "CANCELED":
        return None
    try:
        entries = client.audit(id=job.id)
    except pulse.PermissionDenied:
        return None
    except pulse.PulseError as error:
        if type(error) is not pulse.PulseError:  # an older server does not know the call
            raise
        return None
    return next((entry for entry in entries if entry.method.startswith("Cancel")), None)
