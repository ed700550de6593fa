"""Acts on all jobs that match: counts first, shows and asks, then goes batch by batch.

Whoever stops half-way leaves the rest untouched, and is told how far it came. A job that came after the count
is left alone, and one that has moved on by its turn is passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulse_cli import tuning
from pulse_cli.failures import INTERRUPTED, Failure, Misuse, failure_of
from pulse_cli.inputs.filters import Which, job_filter
from pulse_cli.inputs.questions import confirm
from pulse_cli.loops.interrupts import between_steps
from pulse_cli.loops.progress import of_total, progress_bar
from pulse_cli.views.jobs import job_view
from pulse_cli.views.output import output_here, table
from pulse_cli.views.shapes import bulk_shape
from pulse_cli.views.tables import QUIET, Cell, Line
from pulse_cli.views.terminal import print_lines

if TYPE_CHECKING:
    from pulse import Batch, JobFilter, JobInfo, SyncPulse


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done with jobs, and how it is said."""

    verb: str
    done: str
    statuses: tuple[str, ...]
    """The jobs that it can be done to."""
    step: Callable[[SyncPulse, JobFilter, str | None], Batch]
    """Does the next batch, from a cursor on."""
    usual_status: str | None = None
    """The one that is meant if none is named; None: all of `statuses`."""
    needs_status: bool = False
    """One has to be named."""

    def checked(self, which: Which) -> Which:
        """Return which jobs are meant. Raises Misuse for everything there is, and for what cannot be done."""
        if which.is_any:
            raise Misuse(f"Say which jobs to {self.verb}: by their ids, or by --topic, --status and so on.")
        if which.status and which.status not in self.statuses:
            able = ", ".join(self.statuses)
            raise Misuse(f"Jobs that are {which.status} cannot be {self.done}: only {able} can.")
        if which.status is None and self.needs_status:
            raise Misuse(f"Say with --status which ones to {self.verb}: {', '.join(self.statuses)}.")
        return replace(which, status=which.status or self.usual_status)

    def was_done(self, which: Which, count: int) -> str:
        """Say what was done to how many."""
        return f"{which.told(count)} {'was' if count == 1 else 'were'} {self.done}."


def act_on_matching(client: SyncPulse, action: Action, which: Which, *, yes: bool, dry_run: bool) -> None:
    """Act on what matches, unless the answer is no. Raises a Failure if it does not come to its end."""
    output = output_here()
    wanted = job_filter(client, which)
    counted = _count(client, wanted)
    # What is submitted from now on was not counted, and is not what was agreed to.
    wanted["before"] = min(filter(None, [which.before, counted.at]), default=None)
    if counted.count == 0:
        shape = bulk_shape(0, 0, counted_at=counted.at, is_complete=True, is_dry_run=dry_run)
        output.show_done(f"There are no {which.told()}: nothing to be {action.done}.", shape)
        return
    if dry_run:
        shape = bulk_shape(counted.count, 0, counted_at=counted.at, is_complete=False, is_dry_run=True)
        output.show_done(f"{_how_many(counted)}{which.told(counted.count)} would be {action.done}.", shape)
        if output.is_for_people:
            print_lines(_preview(client, action, wanted))
        return
    if not yes and sys.stdin.isatty():
        print_lines(_preview(client, action, wanted), stderr=True)
    confirm(f"{action.verb.capitalize()} {_how_many(counted)}{which.told(counted.count)}?", yes=yes)
    done, locked, failure = go_through(client, action, wanted, counted.count)
    if failure is None or not output.is_for_people:
        moved_on = (counted.count or 0) - done - locked
        passed = f" {moved_on:,} had moved on by then." if moved_on > 0 else ""
        if locked:
            passed += (
                f" {locked:,} are locked by another session of the database. Use the command again for them."
            )
        shape = bulk_shape(
            counted.count,
            done,
            locked,
            counted_at=counted.at,
            is_complete=failure is None,
            is_dry_run=False,
        )
        output.show_done(action.was_done(which, done) + passed, shape)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many match, and as of when; a count of None: that would take too long to find out."""

    count: int | None
    at: datetime | None


def _count(client: SyncPulse, wanted: JobFilter) -> _Counted:
    if wanted.get("status") != "COMPLETED":
        found = client.count_jobs(**wanted)
        return _Counted(found.count, found.counted_at)
    if not client.list_jobs(limit=1, **wanted).jobs:
        return _Counted(0, None)
    # The server does not count them. It still tells the time by which later ones are known.
    found = client.count_jobs(**(wanted | {"status": "CANCELED"}))
    return _Counted(None, found.counted_at)


def _how_many(counted: _Counted) -> str:
    return "all " if counted.count is None else ""


def go_through(
    client: SyncPulse, action: Action, wanted: JobFilter, total: int | None
) -> tuple[int, int, Failure | None]:
    """Act batch by batch. Returns how many were changed and were locked, and why it ended early if it did."""
    import pulse

    done, locked, cursor = 0, 0, None

    def so_far() -> str:
        return f"{of_total(done, total)} were {action.done}"

    with between_steps() as interrupts, progress_bar(total, action.done) as progress:
        while True:
            try:
                batch = action.step(client, wanted, cursor)
            except pulse.Unavailable as error:
                # Whether the server got as far as its commit is not known, so neither is the exact number.
                told = f"{so_far()}, and perhaps the batch after them, when: {error.message}"
                return done, locked, Failure(f"{told} Go on with the same command.", failure_of(error).code)
            except pulse.PulseError as error:
                refused = failure_of(error)
                sentence = f"{so_far()}, then: {refused.sentence}" if done else refused.sentence
                return done, locked, Failure(sentence, refused.code)
            except KeyboardInterrupt:  # the second one, by somebody who did not want to wait for the answer
                told = f"{so_far()}, and perhaps the batch after them; the rest is untouched."
                return done, locked, Failure(told, INTERRUPTED)
            done, cursor = done + batch.changed, batch.next_cursor
            locked += batch.locked
            progress.update(done)
            if cursor is None:
                return done, locked, None
            if interrupts.is_asked:
                untouched = f"{so_far()}; the rest is untouched. Go on with the same command."
                return done, locked, Failure(untouched, INTERRUPTED)


def _preview(client: SyncPulse, action: Action, wanted: JobFilter) -> Iterator[Line]:
    """Yield what would be touched: how many in each status if that may differ, and the newest of them."""
    found: list[JobInfo] = []
    counts: list[str] = []
    for status in [wanted["status"]] if wanted.get("status") else action.statuses:
        these: JobFilter = wanted | {"status": status}
        jobs = client.list_jobs(limit=tuning.SAMPLE_SHOWN, **these)
        if jobs.jobs and not wanted.get("status"):
            counts.append(f"{client.count_jobs(**these).count:,} {status}")
        found += jobs
    if counts:
        yield [Cell(", ".join(counts))]
    found.sort(key=lambda job: job.submitted_at or datetime.min.replace(tzinfo=UTC), reverse=True)
    yield [Cell("The newest:", QUIET)]
    yield from table(found[: tuning.SAMPLE_SHOWN], job_view())
