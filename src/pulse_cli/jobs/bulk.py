"""The filter of jobs, and actions on all that match: count, preview, confirm, then act batch by batch.

An interrupted action leaves the rest untouched and reports its progress. Jobs submitted after the count are
left alone; a job that has changed status by its turn is skipped.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar
from uuid import uuid4

import click

from pulse_cli import tuning
from pulse_cli.failures import INTERRUPTED, Failure, Misuse, failure_of
from pulse_cli.inputs import complete_status, confirm, is_whole_id, past_moment, read_metadata, status
from pulse_cli.jobs.views import job_view
from pulse_cli.output import (
    Shape,
    echo_json,
    output_here,
    plain,
    table,
    time_shape,
)
from pulse_cli.terminal import QUIET, Cell, Line, hint, local, of_total, print_lines, progress_bar
from pulse_text import printable
from pulse_text.jobs import STATUSES

if TYPE_CHECKING:
    from pulse import Batch, JobFilter, JobInfo, SyncPulse

F = TypeVar("F", bound=Callable[..., Any])
Result = TypeVar("Result")


# ---------------------------------------------------------------- the filter


@dataclass(frozen=True, slots=True)
class Which:
    """The conditions that jobs must meet; None for no condition."""

    topics: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    since: datetime | None = None
    before: datetime | None = None
    schedule: str | None = None
    error: str | None = None
    metadata: Mapping[str, str] | None = None
    error_group: str | None = None
    lane: str | None = None

    @property
    def is_any(self) -> bool:
        """True if there is no condition."""
        return self == Which()

    def words(self, count: int | None = None) -> str:
        """Return the filter in words: 10,000 DEAD_LETTERED jobs on send-email, submitted since …"""
        number = "" if count is None else f"{count:,}"
        noun = "job" if count == 1 else "jobs"
        on = f"on {either(self.topics)}" if self.topics else ""
        parts = [" ".join(filter(None, [number, either(self.statuses), noun, on]))]
        parts += [f"in the lane {self.lane}"] if self.lane else []
        parts += [f"submitted since {local(self.since)}"] if self.since else []
        parts += [f"submitted before {local(self.before)}"] if self.before else []
        parts += [f"made by {self.schedule}"] if self.schedule else []
        parts += [f"with {self.error!r} in the error"] if self.error else []
        parts += [f"with {name}={value}" for name, value in (self.metadata or {}).items()]
        parts += [f"of the group {self.error_group}"] if self.error_group else []
        return ", ".join(parts)


def either(names: Sequence[str]) -> str:
    """Return the names as a, b or c."""
    *others, last = names or ("",)
    return f"{', '.join(others)} or {last}" if others else last


def filter_options(command: F) -> F:
    """Add the filter options. The command receives them as `which`."""

    @wraps(command)
    def with_filter(
        *args: Any,
        topics: tuple[str, ...],
        statuses: tuple[str, ...],
        since: datetime | None,
        before: datetime | None,
        schedule: str | None,
        error: str | None,
        where: tuple[str, ...],
        error_group: str | None,
        lane: str | None,
        **others: Any,
    ) -> Any:
        if error_group:  # only dead letters have a group
            statuses = statuses or ("DEAD_LETTERED",)
        if lane is not None and len(set(topics)) != 1:
            raise click.UsageError("A lane belongs to a topic: give --topic as well, once.")
        metadata = read_metadata(where)
        topics, statuses = tuple(dict.fromkeys(topics)), tuple(dict.fromkeys(statuses))
        which = Which(topics, statuses, since, before, schedule, error, metadata, error_group, lane)
        return command(*args, which=which, **others)

    decorated: Any = with_filter
    for decorate in (
        click.option(
            "--error-group",
            metavar="GROUP",
            help="Only dead letters of this group; `pulse dead-letters` lists them.",
        ),
        click.option(
            "--metadata",
            "where",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only jobs with this metadata; repeatable.",
        ),
        click.option("--error", metavar="TEXT", help="Only jobs with this text in their last error."),
        click.option("--schedule", metavar="NAME|ID", help="Only jobs of this schedule."),
        click.option(
            "--before", type=past_moment, metavar="TIME", help="Only jobs submitted before this time."
        ),
        click.option(
            "--since",
            type=past_moment,
            metavar="TIME",
            help="Only jobs submitted since this time: 2h for two hours ago, or 2030-01-31T09:00.",
        ),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=status,
            shell_complete=complete_status,
            help=f"Only jobs in this status; repeatable: {', '.join(STATUSES)}.",
        ),
        click.option("--lane", metavar="LANE", help="Only jobs in this lane of the topic."),
        click.option("--topic", "topics", multiple=True, help="Only jobs on this topic; repeatable."),
    ):
        decorated = decorate(decorated)
    return decorated  # type: ignore[no-any-return]  # it takes other keywords, and only click calls it


def job_filter(client: SyncPulse, which: Which) -> JobFilter:
    """Return the filter for the SDK. A schedule given by name is looked up."""
    schedule = which.schedule
    if schedule and not is_whole_id(schedule):  # a deleted schedule has left jobs, and only its id is known
        schedule = client.schedules.get(schedule).id
    return {
        "topics": which.topics or None,
        "statuses": which.statuses or None,
        "since": which.since,
        "before": which.before,
        "schedule_id": schedule,
        "error_contains": which.error,
        "metadata": which.metadata,
        "error_group": which.error_group,
        "lane": which.lane,
    }


# ---------------------------------------------------------------- all that match


class Interrupts:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_requested = False

    def request(self, _signal: int, _frame: FrameType | None) -> None:
        """Record the first Ctrl-C; raise at the second."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def between_steps() -> Iterator[Interrupts]:
    """Defer Ctrl-C for the length of a block, which checks for it between its steps."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.request)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


class Following(TypedDict):
    """Where the next batch starts, and the action of the audit that it belongs to."""

    cursor: str | None
    action_id: str


@dataclass(frozen=True, slots=True)
class Action:
    """An action on jobs, and its words."""

    verb: str
    done: str
    statuses: tuple[str, ...]
    """The statuses that it applies to."""
    step: Callable[[SyncPulse, JobFilter, Following], Batch]
    """Processes the next batch."""
    usual_status: str | None = None
    """The default status; None means all of `statuses`."""
    needs_status: bool = False
    """A status is required."""
    can_be_undone: bool = True
    id: str = field(default_factory=lambda: str(uuid4()))
    """The entry of the audit, for all of its jobs."""

    def checked(self, which: Which) -> Which:
        """Return the filter with its default status. Raises Misuse if it cannot be used."""
        if which.is_any:
            raise Misuse(f"Give the jobs to {self.verb}: ids, or a filter such as --topic or --status.")
        if unable := [status for status in which.statuses if status not in self.statuses]:
            able = ", ".join(self.statuses)
            raise Misuse(f"{either(unable)} jobs cannot be {self.done}: only {able} jobs can.")
        if not which.statuses and self.needs_status:
            raise Misuse(f"Give the --status of the jobs to {self.verb}: {', '.join(self.statuses)}.")
        usual = (self.usual_status,) if self.usual_status else ()
        return replace(which, statuses=which.statuses or usual)

    @property
    def way_back(self) -> Sequence[str]:
        """The line with the command that undoes what was done; none if it cannot be undone."""
        return (f"Undo with: pulse undo {self.id}",) if self.can_be_undone else ()

    def was_done(self, which: Which, count: int) -> str:
        """Return the result as a sentence."""
        return f"{which.words(count)} {'was' if count == 1 else 'were'} {self.done}."


def act_on_matching(client: SyncPulse, action: Action, which: Which, *, yes: bool, dry_run: bool) -> None:
    """Act on all jobs that match, after a confirmation. Raises a Failure if it ends early."""
    output = output_here()
    wanted = job_filter(client, which)
    counted = _count(client, wanted)
    # Jobs submitted after the count were not part of the confirmation.
    wanted["before"] = min(filter(None, [which.before, counted.at]), default=None)
    total = None if counted.at_least else counted.count
    if counted.count == 0 and not counted.at_least:
        shape = bulk_shape(0, 0, counted_at=counted.at, is_complete=True, is_dry_run=dry_run)
        output.show_done(f"There are no {which.words()}. Nothing was {action.done}.", shape)
        return
    if dry_run:
        shape = bulk_shape(total, 0, counted_at=counted.at, is_complete=False, is_dry_run=True)
        output.show_done(f"{_how_many(counted)}{which.words(counted.count)} would be {action.done}.", shape)
        if output.is_for_people:
            print_lines(_preview(client, action, wanted))
        return
    if not yes and sys.stdin.isatty():
        print_lines(_preview(client, action, wanted), stderr=True)
    confirm(f"{action.verb.capitalize()} {_how_many(counted)}{which.words(counted.count)}?", yes=yes)
    done, left, failure = go_through(client, action, wanted, total)
    if failure is None or not output.is_for_people:
        counts = (left.locked, left.held, left.needed, left.in_canceled_workflows)
        moved_on = (total or 0) - done - sum(counts)
        passed = f" {moved_on:,} had changed status before their turn." if moved_on > 0 else ""
        passed += passed_over(*left)
        shape = bulk_shape(
            total,
            done,
            *counts,
            counted_at=counted.at,
            is_complete=failure is None,
            is_dry_run=False,
            action_id=action.id if action.can_be_undone else "",
        )
        if done:
            passed += "".join(f" {line}" for line in action.way_back)
        output.show_done(action.was_done(which, done) + passed, shape)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many jobs match, and when they were counted; None: counting would take too long."""

    count: int | None
    at: datetime | None
    at_least: bool = False
    """There may be more."""


def _count(client: SyncPulse, wanted: JobFilter) -> _Counted:
    if "COMPLETED" not in (wanted.get("statuses") or ()):
        found = client.count_jobs(**wanted)
        return _Counted(found.count, found.counted_at, found.at_least)
    if not client.list_jobs(limit=1, **wanted).jobs:
        return _Counted(0, None)
    # The server does not count completed jobs. This returns the time of the database alone.
    found = client.count_jobs(**(wanted | {"statuses": ["CANCELED"]}))
    return _Counted(None, found.counted_at)


def _how_many(counted: _Counted) -> str:
    return "all " if counted.count is None else "at least " if counted.at_least else ""


class _Left(NamedTuple):
    """How many jobs were left: locked, their unique key is held, their workflow has not ended, or it was
    canceled."""

    locked: int = 0
    held: int = 0
    needed: int = 0
    in_canceled_workflows: int = 0
    canceled_workflows: tuple[str, ...] = ()

    def and_of(self, batch: Batch) -> _Left:
        return _Left(
            self.locked + batch.locked,
            self.held + batch.held,
            self.needed + batch.needed,
            self.in_canceled_workflows + batch.in_canceled_workflows,
            tuple(dict.fromkeys(self.canceled_workflows + batch.canceled_workflows)),
        )


def go_through(
    client: SyncPulse, action: Action, wanted: JobFilter, total: int | None
) -> tuple[int, _Left, Failure | None]:
    """Act batch by batch. Returns how many were changed, how many were left, and why it ended early."""
    import pulse

    done, left = 0, _Left()
    following: Following = {"cursor": None, "action_id": action.id}

    def so_far() -> str:
        return f"{of_total(done, total)} were {action.done}"

    with between_steps() as interrupts, progress_bar(total, action.done) as progress:
        while True:
            try:
                batch = action.step(client, wanted, following)
            except pulse.Unavailable as error:
                # The commit may or may not have happened, so the exact number is unknown.
                sentence = f"{so_far()}, and perhaps one more batch, when: {error.message}"
                sentence += " Continue with the same command."
                return done, left, Failure(sentence, failure_of(error).code, action.way_back)
            except pulse.PulseError as error:
                refused = failure_of(error)
                if not done:
                    return done, left, refused
                sentence = f"{so_far()}, then: {refused.sentence}"
                return done, left, Failure(sentence, refused.code, action.way_back)
            except KeyboardInterrupt:  # the second Ctrl-C, while a call was in flight
                sentence = f"{so_far()}, and perhaps one more batch; the rest is untouched."
                return done, left, Failure(sentence, INTERRUPTED, action.way_back)
            done += batch.changed
            following = {"cursor": batch.next_cursor, "action_id": batch.action_id}
            left = left.and_of(batch)
            progress.update(done)
            if batch.next_cursor is None:
                return done, left, None
            if interrupts.is_requested:
                untouched = f"{so_far()}; the rest is untouched. Continue with the same command."
                return done, left, Failure(untouched, INTERRUPTED, action.way_back if done else ())


def _preview(client: SyncPulse, action: Action, wanted: JobFilter) -> Iterator[Line]:
    """Yield the counts by status, unless the filter names one, and the newest jobs."""
    found: list[JobInfo] = []
    counts: list[str] = []
    named = list(wanted.get("statuses") or ())
    for each in named or action.statuses:
        these: JobFilter = wanted | {"statuses": [each]}
        jobs = client.list_jobs(limit=tuning.SAMPLE_SHOWN, **these)
        if jobs.jobs and len(named) != 1 and each != "COMPLETED":
            counted = client.count_jobs(**these)
            counts.append(f"{'at least ' if counted.at_least else ''}{counted.count:,} {each}")
        found += jobs
    if counts:
        yield [Cell(", ".join(counts))]
    found.sort(key=lambda job: job.submitted_at or datetime.min.replace(tzinfo=UTC), reverse=True)
    yield [Cell("The newest:", QUIET)]
    yield from table(found[: tuning.SAMPLE_SHOWN], job_view())


# ---------------------------------------------------------------- each of some


def act_on_each(
    names: Iterable[str],
    act: Callable[[str], Result],
    *,
    sentence: Callable[[Result], str],
    shape: Callable[[Result], Shape],
    way_back: Sequence[str] = (),
) -> None:
    """Act on each and print the result. Ends with the exit code of the first refusal, if any.

    JSON is an array of the successful ones. An unavailable server ends it at once.
    """
    import pulse

    output = output_here()
    shapes: list[Shape] = []
    first: Failure | None = None
    try:
        for name in names:
            try:
                result = act(name)
            except (pulse.Unavailable, pulse.Unauthenticated, pulse.PermissionDenied):
                raise
            except pulse.PulseError as error:
                failure = failure_of(error)
                first = first or failure
                click.echo(f"pulse: {printable.one_line(failure.sentence)}", err=True)
                continue
            shapes.append(shape(result))
            if output.form == "plain":
                click.echo(
                    "\t".join(plain(shapes[-1].get(key)) for key in ("id", "status") if key in shapes[-1])
                )
            elif output.is_for_people:
                click.echo(printable.one_line(sentence(result)))
    finally:
        if output.form == "json":
            echo_json(shapes)
        elif shapes and output.is_for_people:
            for line in way_back:
                hint(line)
    if first is not None:
        raise Failure("", first.code)


# ---------------------------------------------------------------- results


def bulk_shape(
    matched: int | None,
    changed: int,
    locked: int = 0,
    held: int = 0,
    needed: int = 0,
    in_canceled_workflows: int = 0,
    *,
    counted_at: datetime | None,
    is_complete: bool,
    is_dry_run: bool,
    action_id: str = "",
) -> Shape:
    """The result of an action on many jobs. `matched` is None if they were not counted."""
    return {
        "matched": matched,
        "locked": locked,
        "held": held,
        "needed": needed,
        "in_canceled_workflows": in_canceled_workflows,
        "changed": changed,
        "complete": is_complete,
        "dry_run": is_dry_run,
        "counted_at": time_shape(counted_at),
        "action_id": action_id or None,
    }


# Canceled workflows that a sentence names.
_WORKFLOWS_NAMED = 3


def passed_over(
    locked: int = 0,
    held: int = 0,
    needed: int = 0,
    in_canceled_workflows: int = 0,
    canceled_workflows: Sequence[str] = (),
) -> str:
    """Return sentences about the jobs that an action left unchanged: how many, and why."""
    said = ""
    if locked:
        are, them = ("is", "it") if locked == 1 else ("are", "them")
        said += (
            f" {locked:,} {are} locked by another session of the database. Run the command again for {them}."
        )
    for count, reason in ((held, "another job holds {} unique key"), (needed, "{} workflow has not ended")):
        if count:
            were, its = ("was left as it is", "its") if count == 1 else ("were left as they are", "their")
            said += f" {count:,} {were}: {reason.format(its)}."
    if count := in_canceled_workflows:
        were, they = (
            ("was left as it is", "it waits") if count == 1 else ("were left as they are", "they wait")
        )
        said += (
            f" {count:,} {were}: {they} for other jobs of workflows that were canceled. Retry the workflow: "
        )
        said += (
            "; ".join(f"pulse workflows retry {one}" for one in canceled_workflows[:_WORKFLOWS_NAMED]) + "."
        )
    return said
