"""What changes jobs: `pulse jobs cancel`, `retry`, `prioritize`, `delete` and `signal`, and `pulse undo`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.failures import Misuse
from pulse_cli.inputs import WholeNumber, confirm, job_id, job_ids, read_payload, reason_here, reason_option
from pulse_cli.jobs.bulk import (
    Action,
    Following,
    Which,
    act_on_each,
    act_on_matching,
    filter_options,
    go_through,
    passed_over,
)
from pulse_cli.jobs.views import job_shape
from pulse_cli.output import Shape, output_here
from pulse_text.jobs import LIVE, RETRYABLE, TERMINAL

if TYPE_CHECKING:
    from pulse import Batch, JobFilter, JobInfo, SyncPulse, Undone

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _bulk_options(command: F) -> F:
    for decorate in (
        click.option("--dry-run", is_flag=True, help="Only count the matching jobs, and change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
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
@click.option("--reason", default="", help="The reason, stored with the job and in the audit.")
def cancel(ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool, reason: str) -> None:
    """Cancel jobs by id, or all jobs that match a filter. A running handler is asked to stop.

    Without --status it applies to all unfinished jobs that match. Shows the number of jobs and asks for
    confirmation; --yes skips it. Ctrl-C stops after the current batch and prints how many were canceled.
    """
    action = Action(
        "cancel",
        "canceled",
        LIVE,
        lambda client, wanted, following: client.cancel_batch(reason=reason, **following, **wanted),
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.cancel(job_id, reason, action_id=action.id),
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
        pulse jobs retry 0199c0de-0000-70 --fresh
        pulse jobs retry --status CANCELED --topic reminders --now
    """,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_bulk_options
@click.option("--attempts", type=WholeNumber(min=1), metavar="N", help="The number of further attempts.")
@click.option("--fresh", is_flag=True, help="Forget the steps and the progress of earlier attempts.")
@click.option("--now", is_flag=True, help="Start canceled jobs now, also if they were to start later.")
@reason_option
def retry(
    ids: tuple[str, ...],
    which: Which,
    yes: bool,
    dry_run: bool,
    attempts: int | None,
    fresh: bool,
    now: bool,
) -> None:
    """Retry dead-lettered or canceled jobs by id, or all jobs that match a filter.

    A job continues after its stored steps; with --fresh it starts over. A canceled job that never started
    keeps its later start time; with --now it starts now.
    Without --status it applies to dead-lettered jobs. Shows the number of jobs and asks for
    confirmation; --yes skips it. Ctrl-C stops after the current batch and prints how many were retried.
    """
    action = Action(
        "retry",
        "retried",
        RETRYABLE,
        lambda client, wanted, following: client.retry_batch(
            attempts=attempts, fresh=fresh, now=now, reason=reason_here(), **following, **wanted
        ),
        # Canceled jobs were canceled on purpose: retry them only if the status is given.
        usual_status="DEAD_LETTERED",
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.retry(
            job_id, attempts, fresh=fresh, now=now, reason=reason_here(), action_id=action.id
        ),
        sentence=_moved("Retried"),
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
    type=WholeNumber(-(2**31), 2**31 - 1),
    required=True,
    metavar="N",
    help="The new priority: higher runs first, 0 is the default.",
)
@click.option("--reason", default="", help="The reason, kept in the audit.")
def prioritize(
    ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool, priority: int, reason: str
) -> None:
    """Change the priority of jobs by id, or of all jobs that match a filter.

    Without --status it applies to all unfinished jobs that match. A running job is not interrupted; its
    priority applies to its next attempt. Shows the number of jobs and asks for confirmation; --yes skips
    it. Ctrl-C stops after the current batch.
    """
    action = Action(
        "prioritize",
        "prioritized",
        LIVE,
        lambda client, wanted, following: client.prioritize_batch(
            priority, reason=reason, **following, **wanted
        ),
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: client.prioritize(job_id, priority, reason, action_id=action.id),
        sentence=lambda job: f"{job.id} on {job.topic} now has priority {job.priority}.",
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
@reason_option
def delete(ids: tuple[str, ...], which: Which, yes: bool, dry_run: bool) -> None:
    """Delete finished jobs by id, or all jobs that match a filter with --status.

    This cannot be undone. Their ids and idempotency keys become free. Shows the number of jobs and
    asks for confirmation; --yes skips it. COMPLETED jobs are not counted: there may be millions.
    Ctrl-C stops after the current batch and prints how many were deleted.
    """
    action = Action(
        "delete",
        "deleted",
        TERMINAL,
        lambda client, wanted, following: client.delete_batch(reason=reason_here(), **following, **wanted),
        needs_status=True,
        can_be_undone=False,
    )
    _act(
        ids,
        which,
        action,
        yes=yes,
        dry_run=dry_run,
        one=lambda client, job_id: _delete(client, job_id, action.id),
        sentence=lambda job_id: f"Deleted {job_id}.",
        shape=lambda job_id: {"id": job_id},
    )


def _delete(client: SyncPulse, job_id: str, action_id: str) -> str:
    client.delete(job_id, reason=reason_here(), action_id=action_id)
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
    """Act on the jobs given by id, or on all matching jobs."""
    if not ids:
        meant = action.checked(which)
        with connected() as client:
            act_on_matching(client, action, meant, yes=yes, dry_run=dry_run)
        return
    if not which.is_any or dry_run:
        raise Misuse("Give ids or a filter such as --topic or --status, not both.")
    with connected() as client:
        act_on_each(
            job_ids(client, ids),
            lambda job_id: one(client, job_id),
            sentence=sentence,
            shape=shape,
            way_back=action.way_back,
        )


def _moved(done: str) -> Callable[[JobInfo], str]:
    return lambda job: f"{done} {job.id} on {job.topic}: it is now {job.status}."


@click.command(
    "signal",
    cls=Command,
    examples="""
        pulse jobs signal 0199c0de-0000-7000-8000-000000000001 approved
        pulse jobs signal 0199c0de-0000-70 approved --payload '{"by": "Ann"}'
    """,
)
@click.argument("job", metavar="ID")
@click.argument("name", metavar="NAME")
@click.option("--payload", metavar="JSON", help="The value of the signal; null if not given.")
@click.option("--raw", is_flag=True, help="Send the value unchanged, without checking that it is JSON.")
@reason_option
def signal(job: str, name: str, payload: str | None, raw: bool) -> None:
    """Send a signal to a job, for its ctx.wait_for(NAME). A signal before the wait is kept."""
    value = read_payload(payload, None, None, raw=raw)
    with connected() as client:
        found = job_id(client, job)
        client.signal(found, name, value, reason=reason_here())
    output_here().show_done(f"Sent {name} to {found}.", {"id": found, "signal": name})


# ---------------------------------------------------------------- undo


@click.command(
    "undo",
    cls=Command,
    examples="""
        pulse undo 0199c0de-0000-7000-8000-000000000001
        pulse undo 0199c0de-0000-7000-8000-000000000001 --dry-run
        pulse undo 0199c0de-0000-7000-8000-000000000001 --yes --reason 'wrong filter'
    """,
)
@click.argument("action", metavar="ACTION")
@click.option("--dry-run", is_flag=True, help="Only count the jobs, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--reason", default="", help="The reason, for the audit.")
def undo(action: str, dry_run: bool, yes: bool, reason: str) -> None:
    """Revert a cancel, a retry or a change of priority. The command that made it printed its id.

    Canceled jobs wait again, with their start times; retried jobs that have not started are finished
    again; priorities are as before. Jobs that have changed since are left as they are, and so are jobs
    that were running when they were canceled. A delete cannot be undone. Ctrl-C stops after the current
    batch.
    """
    with connected() as client:
        counted = _counted(client, action)
        shape = {"action_id": action, "undone": 0, "skipped": counted.skipped, "running": counted.running}
        shape |= {"held": counted.held, "locked": 0}
        if dry_run or not counted.undone:
            sentence = f"{_jobs(counted.undone)} would be undone.{_left(counted)}"
            output_here().show_done(sentence, {**shape, "matched": counted.undone, "dry_run": dry_run})
            return
        confirm(f"Undo the action for {_jobs(counted.undone)}?{_left(counted)}", yes=yes)

        def step(client: SyncPulse, _: JobFilter, following: Following) -> Batch:
            from pulse import Batch

            cursor, undo_id = following["cursor"], following["action_id"]
            batch = client.undo_batch(action, reason=reason, cursor=cursor, undo_id=undo_id)
            return Batch(batch.undone, batch.next_cursor, batch.locked, action_id=undo_id)

        undoing = Action("undo", "undone", (), step, can_be_undone=False)
        done, left, failure = go_through(client, undoing, {}, counted.undone)
    if failure is not None:
        raise failure
    changed = counted.undone - done - left.locked
    more = f" {changed:,} had changed before their turn." if changed > 0 else ""
    more += passed_over(left.locked)
    was = "was" if done == 1 else "were"
    output_here().show_done(
        f"{_jobs(done)} {was} undone.{more}{_left(counted)}",
        {**shape, "undone": done, "locked": left.locked, "matched": counted.undone, "dry_run": False},
    )


def _counted(client: SyncPulse, action: str) -> Undone:
    """Count the jobs that can be undone, page by page."""
    from pulse import Undone

    total = Undone(0, 0, 0, None)
    while True:
        total += client.undo_batch(action, dry_run=True, cursor=total.next_cursor)
        if total.next_cursor is None:
            return total


def _left(counted: Undone) -> str:
    sentences = ""
    if others := counted.skipped - counted.running - counted.held:
        sentences += f" {others:,} changed since, and stay as they are."
    if counted.held:
        stay, key = ("stays as it is", "its") if counted.held == 1 else ("stay as they are", "their")
        sentences += f" {counted.held:,} {stay}: another job holds {key} unique key."
    if counted.running:
        sentences += (
            f" {counted.running:,} were running: pulse jobs retry --status CANCELED, with the same filter, "
            "runs them again."
        )
    return sentences


def _jobs(count: int) -> str:
    return f"{count:,} job" + ("" if count == 1 else "s")
