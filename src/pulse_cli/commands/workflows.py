"""`pulse workflows`: list, get, watch, cancel and retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Group
from pulse_cli.failures import Failure
from pulse_cli.inputs import (
    WholeNumber,
    confirm,
    once_option,
    paging_options,
    reason_here,
    reason_option,
    workflow_id,
)
from pulse_cli.loops.workflows import jobs_of, watch_workflow
from pulse_cli.output import collect, hint_at_more, output_here
from pulse_cli.terminal import table_width
from pulse_cli.tuning import TREE_LINES
from pulse_cli.views.workflows import describe_workflow, whole_workflow_shape, workflow_shape, workflow_view
from pulse_text.workflows import STATUSES

if TYPE_CHECKING:
    import pulse


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
            *(limit, everything, cursor),
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
