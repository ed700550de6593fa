"""Workflows and their jobs in words: 9,120 of 10,003 done, 3 failed; waits for 2 of 5.

And which of their jobs are equal, so that a line or a box can stand for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from pulse_text import printable
from pulse_text.jobs import what_it_waits_for
from pulse_text.times import format_duration

STATUSES = ("running", "succeeded", "failed", "canceled")
KINDS = (
    "done",
    "running",
    "retrying",
    "suspended",
    "failed",
    "ready",
    "delayed",
    "waiting",
    "canceled",
    "skipped",
)
"""The kinds of jobs in a workflow, in the order of their counts. `waiting`: for other jobs.
`suspended`: the handler sleeps, or waits for a signal."""
ACTIVE = ("running", "retrying", "suspended", "ready", "delayed", "waiting")
"""The kinds of jobs that have not ended."""

_NAMED = 5  # parents in one sentence


class Totals(Protocol):
    """The counts of a workflow as the SDK has them."""

    @property
    def jobs(self) -> int: ...
    @property
    def succeeded(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def canceled(self) -> int: ...
    @property
    def skipped(self) -> int: ...


class Job(Protocol):
    """A job of a workflow as the SDK has it."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def status(self) -> str | None: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def parents(self) -> Sequence[int]: ...
    @property
    def unended_parents(self) -> int: ...
    @property
    def last_error(self) -> str | None: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...
    @property
    def next_run_at(self) -> datetime | None: ...
    @property
    def waits_for(self) -> str | None: ...


def progress(totals: Totals) -> str:
    """Return the progress of a workflow: `9,120 of 10,003 done, 3 failed`."""
    others = (
        (totals.failed, "failed"),
        (totals.canceled, "canceled"),
        (totals.skipped, "skipped"),
    )
    parts = [f"{totals.succeeded:,} of {totals.jobs:,} done"]
    return ", ".join([*parts, *(f"{count:,} {word}" for count, word in others if count)])


def kind(job: Job, present: datetime) -> str:
    """Return the kind of a job, one of KINDS."""
    match (job.outcome, job.status):
        case ("succeeded", _):
            return "done"
        case ("failed" | "canceled" | "skipped", _):
            return str(job.outcome)
        case (_, "COMPLETED"):  # ended a moment ago, and not counted yet
            return "done"
        case (_, "DEAD_LETTERED"):
            return "failed"
        case (_, "RUNNING"):
            return "running"
        case (_, "RETRYING"):
            return "retrying" if job.waits_for is None else "suspended"
        case (_, "CANCELED") | (_, None) | (_, ""):
            return "canceled"
    if job.state == "waiting":
        return "waiting"
    return "delayed" if job.next_run_at is not None and job.next_run_at > present else "ready"


def state(job: Job, present: datetime, write: Callable[[timedelta], str] = format_duration) -> str:
    """Return a job's state: `waits for 2 of 5`, `running 3s`, `done in 1.2s`, `failed: …`."""
    error = printable.summary(job.last_error or "")
    because = f": {error}" if error else ""
    match kind(job, present):
        case "done":
            took = _span(job.started_at, job.finished_at, write)
            return f"done in {took}" if took else "done"
        case "running":
            return f"running {_span(job.started_at, present, write)}".rstrip()
        case "retrying":
            due = job.next_run_at
            rest = f"in {write(_seconds(due - present))}" if due is not None and due > present else "now"
            return f"retrying {rest}{because}"
        case "suspended":
            return what_it_waits_for(job.waits_for or "", job.next_run_at, present, write)
        case "delayed":
            assert job.next_run_at is not None
            return f"runs in {write(_seconds(job.next_run_at - present))}"
        case "ready":
            return "waits for a worker"
        case "waiting":
            return f"waits for {job.unended_parents:,} of {len(job.parents):,}"
        case "skipped":
            return "skipped: not needed"
        case "canceled":
            return f"canceled{because}"
    return f"failed{because}"


def waits_for(parents: Iterable[Job], present: datetime) -> str:
    """Return the jobs that a job still waits for.

    `waits for 2 of 5: extract-mon (running), extract-tue (retrying in 4s)`
    """
    every = list(parents)
    left = [parent for parent in every if kind(parent, present) in ACTIVE]
    if not left:
        return "waits for other jobs"
    # The error of a retry would hide the next name.
    words = (f"{_name(parent)} ({state(parent, present).partition(': ')[0]})" for parent in left[:_NAMED])
    more = f" and {len(left) - _NAMED:,} more" if len(left) > _NAMED else ""
    return f"waits for {len(left):,} of {len(every):,}: {', '.join(words)}{more}"


def _name(job: Job) -> str:
    return printable.one_line(job.name)


def _span(start: datetime | None, end: datetime | None, write: Callable[[timedelta], str]) -> str:
    if start is None or end is None:
        return ""
    return write(max(end - start, timedelta(0)))


def _seconds(span: timedelta) -> timedelta:
    # Whole seconds: tenths would show the difference between two clocks.
    return timedelta(seconds=max(round(span.total_seconds()), 1))


class LinkedJob(Protocol):
    """A job and its parents, by their numbers."""

    @property
    def number(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def when(self) -> str: ...
    @property
    def parents(self) -> Sequence[int]: ...


def equality_keys(jobs: Sequence[LinkedJob]) -> list[Hashable]:
    """Return a key for each job, the same one for equal jobs. Parents that are not in `jobs` do not count.

    Equal jobs have the same topic and condition, and so have the jobs before and after them. They have the
    same distance to the start: groups of them have no cycle either.
    """
    known = {job.number: job for job in jobs}
    above = {job.number: [number for number in job.parents if number in known] for job in jobs}
    under: dict[int, list[int]] = {number: [] for number in known}
    for number, parents in above.items():
        for parent in parents:
            under[parent].append(number)
    order = _parents_first(above, under)
    upward = _signatures(known, order, above)
    downward = _signatures(known, order[::-1], under)
    return [(upward[job.number], downward[job.number]) for job in jobs]


def _parents_first(above: Mapping[int, Sequence[int]], under: Mapping[int, Sequence[int]]) -> list[int]:
    left = {number: len(parents) for number, parents in above.items()}
    order = [number for number, count in left.items() if count == 0]
    for number in order:  # grows
        for child in under[number]:
            left[child] -= 1
            if left[child] == 0:
                order.append(child)
    return order


def _signatures(
    known: Mapping[int, LinkedJob], order: Sequence[int], next_to: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return a number for each job. Jobs with equal neighbors, and so on to the end, share a number."""
    numbers: dict[object, int] = {}
    found: dict[int, int] = {}
    for number in order:
        job = known[number]
        shape = (job.topic, job.when, tuple(sorted(found[near] for near in next_to[number])))
        found[number] = numbers.setdefault(shape, len(numbers))
    return found
