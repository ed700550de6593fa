"""`pulse undo`: reverts an action on jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.inputs import confirm
from pulse_cli.loops.bulk import Action, Following, go_through
from pulse_cli.output import output_here
from pulse_cli.terminal import passed_over

if TYPE_CHECKING:
    from pulse import Batch, JobFilter, SyncPulse, Undone


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
