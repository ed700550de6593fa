"""`pulse jobs cancel`, `retry`, `prioritize` and `delete`: some jobs by their ids, or all that match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.failures import Misuse
from pulse_cli.inputs.filters import Which, filter_options
from pulse_cli.inputs.identifiers import job_ids
from pulse_cli.loops.bulk import Action, act_on_matching
from pulse_cli.loops.one_by_one import act_on_each
from pulse_cli.views.shapes import Shape, job_shape
from pulse_text.statuses import LIVE, RETRYABLE, TERMINAL

if TYPE_CHECKING:
    from pulse import JobInfo, SyncPulse

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _bulk_options(command: F) -> F:
    for decorate in (
        click.option("--dry-run", is_flag=True, help="Only count what matches, and change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask before acting on all that match."),
    ):
        command = decorate(command)
    return filter_options(command)


@click.command(
    cls=Command,
    examples="""
        pulse jobs cancel 0199c0de-0000-7000-8000-000000000001 --reason 'sent twice'
        pulse jobs cancel 0199c0de-0000-70
        pulse jobs cancel --topic import --status PENDING
        pulse jobs cancel --topic import --since 2h --yes --reason 'wrong file'
        pulse jobs cancel --schedule morning-report --dry-run
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_bulk_options
@click.option("--reason", default="", help="Why; it is kept with the job.")
def cancel(ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool, reason: str) -> None:
    """Cancel jobs: those named, or all that match. A handler that runs is told to stop.

    Without a status all that match and have not finished are meant. They are counted and shown first,
    then you are asked; --yes skips the question. Ctrl-C stops between two batches, and tells how many
    were canceled until then.
    """
    action = Action(
        "cancel",
        "canceled",
        LIVE,
        lambda client, wanted, cursor: client.cancel_batch(reason=reason, cursor=cursor, **wanted),
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.cancel(job_id, reason),
        sentence=_moved("Canceled"),
        shape=job_shape,
    )


@click.command(
    cls=Command,
    examples="""
        pulse jobs retry 0199c0de-0000-7000-8000-000000000001
        pulse jobs retry 0199c0de-0000-70 --attempts 3
        pulse jobs retry --topic send-email --status DEAD_LETTERED
        pulse jobs retry --status DEAD_LETTERED --since 2h --error 'connection refused' --yes
        pulse jobs retry --status CANCELED --topic import --dry-run
        pulse jobs retry --topic send-email --error-group 86194952523c
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_bulk_options
@click.option(
    "--attempts", type=click.IntRange(min=1), metavar="N", help="Give each this many further attempts."
)
def retry(ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool, attempts: int | None) -> None:
    """Bring back jobs that were dead-lettered or canceled: those named, or all that match.

    Without a status all that match and were dead-lettered are meant. They are counted and shown first,
    then you are asked; --yes skips the question. Ctrl-C stops between two batches, and tells how many
    were put back in line until then.
    """
    action = Action(
        "retry",
        "put back in line",
        RETRYABLE,
        lambda client, wanted, cursor: client.retry_batch(attempts=attempts, cursor=cursor, **wanted),
        # What was canceled was so on purpose: it comes back only for those who say so.
        usual_status="DEAD_LETTERED",
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.retry(job_id, attempts),
        sentence=_moved("Brought back"),
        shape=job_shape,
    )


@click.command(
    cls=Command,
    examples="""
        pulse jobs prioritize 0199c0de-0000-7000-8000-000000000001 --priority 10
        pulse jobs prioritize --topic send-email --metadata tenant=acme --priority 5 --reason 'ticket 4711'
        pulse jobs prioritize --topic import --status PENDING --priority -1 --yes
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_bulk_options
@click.option(
    "--priority",
    type=click.IntRange(-(2**31), 2**31 - 1),
    required=True,
    metavar="N",
    help="The new priority: higher runs first, 0 is the usual.",
)
@click.option("--reason", default="", help="Why; the server logs it.")
def prioritize(
    ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool, priority: int, reason: str
) -> None:
    """Give jobs another priority: those named, or all that match.

    Without a status all that match and have not finished are meant. One that runs goes on; its priority
    counts if it is tried again. They are counted and shown first, then you are asked; --yes skips the
    question. Ctrl-C stops between two batches.
    """
    action = Action(
        "prioritize",
        "prioritized",
        LIVE,
        lambda client, wanted, cursor: client.prioritize_batch(
            priority, reason=reason, cursor=cursor, **wanted
        ),
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.prioritize(job_id, priority, reason),
        sentence=lambda job: f"{job.id} on {job.topic} has the priority {job.priority} now.",
        shape=job_shape,
    )


@click.command(
    cls=Command,
    examples="""
        pulse jobs delete 0199c0de-0000-7000-8000-000000000001
        pulse jobs delete --status CANCELED --topic import
        pulse jobs delete --status DEAD_LETTERED --before 30d --yes
        pulse jobs delete --topic send-email --error-group 86194952523c --dry-run
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_bulk_options
def delete(ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool) -> None:
    """Delete finished jobs for good: those named, or all that match and have the status given.

    Their ids and idempotency keys are free then. The jobs are counted and shown first, then you are asked;
    --yes skips the question. Only COMPLETED ones are not counted: there may be millions. Ctrl-C stops
    between two batches, and tells how many were deleted until then.
    """
    action = Action(
        "delete",
        "deleted",
        TERMINAL,
        lambda client, wanted, cursor: client.delete_batch(cursor=cursor, **wanted),
        needs_status=True,
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=_delete,
        sentence=lambda job_id: f"Deleted {job_id}.",
        shape=lambda job_id: {"id": job_id},
    )


def _delete(client: SyncPulse, job_id: str) -> str:
    client.delete(job_id)
    return job_id


def _act(
    ids: Sequence[str],
    which: Which,
    action: Action,
    *,
    yes: bool,
    dry_run: bool,
    one: Callable[[SyncPulse, str], T],
    sentence: Callable[[T], str],
    shape: Callable[[T], Shape],
) -> None:
    """Act on the jobs named, or else on all that match."""
    if not ids:
        meant = action.checked(which)
        with connected() as client:
            act_on_matching(client, action, meant, yes=yes, dry_run=dry_run)
        return
    if not which.is_any or dry_run:
        raise Misuse("Give ids, or say which jobs with --topic, --status and so on: not both.")
    with connected() as client:
        act_on_each(job_ids(client, ids), lambda job_id: one(client, job_id), sentence=sentence, shape=shape)


def _moved(done: str) -> Callable[[JobInfo], str]:
    return lambda job: f"{done} {job.id} on {job.topic}: it is {job.status} now."
