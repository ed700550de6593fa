"""The states of a job and the arrows between them, and the nouns: a job, a claim on it, its progress.

docs/job-lifecycle.md draws the same machine. Types that exist once per job on the hot path are named tuples:
as immutable as a frozen dataclass, and made in a third of the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class JobStatus(StrEnum):
    PENDING = "PENDING"  # waits for a claim; the promoter makes it ready when it is due
    RUNNING = "RUNNING"  # a worker holds its lease; a report, a release, the watchdog or a cancel moves it on
    RETRYING = "RETRYING"  # an attempt failed or was handed back; waits for the next claim
    COMPLETED = "COMPLETED"  # a worker reported success; final
    DEAD_LETTERED = "DEAD_LETTERED"  # out of attempts, or discarded; an operator may redrive it
    CANCELED = "CANCELED"  # an operator or the application called it off; an operator may redrive it


WAITING = frozenset({JobStatus.PENDING, JobStatus.RETRYING})
LIVE = frozenset({JobStatus.PENDING, JobStatus.RETRYING, JobStatus.RUNNING})
TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED})
REDRIVABLE = frozenset({JobStatus.DEAD_LETTERED, JobStatus.CANCELED})

# How a job begins: in line, or with a worker that waited for it.
INITIAL = frozenset({JobStatus.PENDING, JobStatus.RUNNING})

LEGAL_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    # An undone retry may be dead-lettered again.
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.CANCELED, JobStatus.DEAD_LETTERED}),
    JobStatus.RETRYING: frozenset({JobStatus.RUNNING, JobStatus.CANCELED}),
    JobStatus.RUNNING: frozenset(
        {JobStatus.COMPLETED, JobStatus.RETRYING, JobStatus.DEAD_LETTERED, JobStatus.CANCELED}
    ),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.DEAD_LETTERED: frozenset({JobStatus.PENDING}),
    # An undone cancel may wait for its retry again.
    JobStatus.CANCELED: frozenset({JobStatus.PENDING, JobStatus.RETRYING}),
}

MAX_PROGRESS_TEXT = 200
MAX_CURSOR_BYTES = 4 * 1024


class ProgressReport(NamedTuple):
    """A handler's report. The number grows with each report of an attempt: the highest one wins."""

    fraction: float | None
    """Of the work, 0 to 1. None: not known."""
    text: str
    cursor: str | None
    """JSON; empty: none. None: as it was."""
    number: int

    @property
    def size(self) -> int:
        """About how many bytes it adds to a statement."""
        return len(self.text) * 4 + len(self.cursor or "") + 100


class Progress(NamedTuple):
    """Progress as stored, by the last attempt that reported any."""

    fraction: float | None
    text: str
    cursor: str
    """JSON; empty: none, or left out."""
    attempt: int
    reported_at: datetime
    since: datetime | None
    """When the fraction was `since_fraction`: the remaining time is estimated from both."""
    since_fraction: float


def clean_report(fraction: float | None, text: str, cursor: bytes | None, number: int) -> ProgressReport:
    """The report within its bounds. Nothing is refused: progress must not make a heartbeat fail."""
    if fraction is not None:
        fraction = min(1.0, max(0.0, fraction)) if math.isfinite(fraction) else None
    text = "".join(character if character.isprintable() else " " for character in text[:MAX_PROGRESS_TEXT])
    return ProgressReport(fraction, text, None if cursor is None else _clean_cursor(cursor), max(0, number))


def _clean_cursor(cursor: bytes) -> str | None:
    """The cursor as text, or None for one that cannot be stored: the last one stays."""
    if not cursor:
        return ""
    if len(cursor) > MAX_CURSOR_BYTES:
        return None
    try:
        text = cursor.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return text


# The size of a step in a message without its name and value: its times, and a signal's name.
STEP_OVERHEAD_BYTES = 100


class StepKind(StrEnum):
    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"


class Step(NamedTuple):
    """A step as stored. Steps of completed jobs have no values."""

    name: str
    kind: StepKind
    attempt: int
    """The attempt that stored it, or that waits for it."""
    started_at: datetime
    stored_at: datetime | None
    """None: a signal that has not come."""
    until: datetime | None
    """The end of a sleep, or of the wait for a signal. None: it has none."""
    signal_id: str | None
    value: bytes | None
    """None of a sleep, and of a signal that did not come in time."""
    size: int
    is_due: bool = False
    """Whether `until` has passed."""
    signal: str = ""
    """The name of the signal that came. Completed jobs do not keep it."""

    @property
    def stored_bytes(self) -> int:
        """About how many bytes it adds to a message."""
        return STEP_OVERHEAD_BYTES + len(self.name.encode()) + len(self.value or b"")


class Claim(NamedTuple):
    """The fence. A worker's report on a job counts only while every field matches the row.

    The run is the number of the claim. It only grows, so no claim is made twice. A caller of the
    original contract sends fewer fields: a None is not checked.
    """

    job_id: str
    worker_id: str | None
    attempt: int | None
    run: int | None = None

    def covers(self, held: Claim) -> bool:
        """Whether both are the same claim, by the fields that both have. The job ids are equal."""
        return (
            self.worker_id in (None, held.worker_id)
            and self.attempt in (None, held.attempt)
            and (self.run in (None, held.run) or held.run is None)
        )


class ReleaseAnswer(NamedTuple):
    """How many jobs were released, and the claims that still hold because their rows are locked."""

    released: int
    locked: list[Claim]


class ClaimedJob(NamedTuple):
    """A job as it goes to a worker. `confirm`: the worker must extend its lease before it starts.

    `claimed_jobs_from_rows` makes it and `DeliveryEncoder` takes it apart by position: names cost too much
    for a thousand jobs.
    """

    id: str
    topic: str
    payload: bytes
    attempt: int
    run: int
    priority: int
    max_attempts: int
    metadata: Mapping[str, str] | None
    idempotency_key: str | None
    worker_id: str
    confirm: bool
    waited_seconds: float
    """Seconds since it was due."""
    age_seconds: float | None = None
    """Seconds since its submit; only on the last job of a claim. None there: the claim was cut short."""
    has_steps: bool | None = None
    """Whether steps or signals are stored."""
    lane: str | None = None
    """The lane of a job in a limited topic."""
    progress: Progress | None = None
    """The progress of the last attempt that reported any."""
    steps: Sequence[Step] | None = None
    """The stored steps. None: they were not read."""

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.worker_id, self.attempt, self.run)


class Level(NamedTuple):
    """Jobs of a topic and a priority that were submitted no longer ago than this."""

    topic: str
    priority: int
    age_seconds: float


class Ended(NamedTuple):
    """An attempt that its worker reported: the job's new status, and how long the attempt took."""

    status: JobStatus
    topic: str
    ran_seconds: float


class Outcome(StrEnum):
    """How an unsuccessful attempt ended, as recorded in the history."""

    FAILED = "failed"
    DISCARDED = "discarded"
    TIMED_OUT = "timed_out"
    SNOOZED = "snoozed"
    SUSPENDED = "suspended"
    LEASE_EXPIRED = "lease_expired"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished run that was not a success."""

    attempt: int
    run: int
    worker_id: str
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    error: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored."""

    id: str
    topic: str
    status: JobStatus
    priority: int
    attempts: int
    max_attempts: int
    submitted_at: datetime
    next_run_at: datetime
    run: int = 0
    """The number of its last claim."""
    payload: bytes = b""
    ready: bool = False
    delivered: bool = False
    locked_by: str | None = None
    lease_until: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    finished_by: str | None = None
    last_error: str | None = None
    idempotency_key: str | None = None
    schedule_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    error_group: str = ""
    """The group of a dead letter; empty for dead letters older than error groups."""
    snoozes: int = 0
    """Runs that were snoozed. They cost no attempt."""
    crashes: int = 0
    """Attempts that ended in a lost lease, since the last retry by an operator."""
    start_by: datetime | None = None
    """It is canceled if it has not started by then."""
    unique_key: str | None = None
    unique_scope: str | None = None
    """The scope of the key, as in Unique. None: the job holds no key, or no longer."""
    lane: str | None = None
    steps: int = 0
    suspensions: int = 0
    """Runs that a sleep or the wait for a signal suspended."""
    waits_for: str | None = None
    """The signals that a suspended job waits for, one in each line; empty: it sleeps."""
    workflow_id: str | None = None
    held: bool = False
    """It waits for jobs of its workflow, or was canceled while it did."""
    history: tuple[Attempt, ...] = ()
    result: bytes | None = None
    """The return value of a completed job's handler."""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A canceled job, and the claim that this ended, if a worker held the job."""

    job: Job
    ended_claim: Claim | None


@dataclass(frozen=True, slots=True)
class Reaped:
    """A claim whose lease expired, and the job's new status."""

    claim: Claim
    topic: str
    status: JobStatus
    delivered: bool
    timed_out: bool = False  # the time limit of the attempt ended it


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects jobs. A None matches all."""

    topics: frozenset[str] | None = None
    statuses: frozenset[JobStatus] | None = None
    submitted_since: datetime | None = None
    submitted_before: datetime | None = None
    schedule_id: str | None = None
    error_contains: str | None = None
    """Text in the last error, ignoring case."""
    metadata: Mapping[str, str] | None = None
    """The job's metadata contains every entry."""
    error_group: str | None = None
    """The error group of a dead letter; empty selects dead letters without a group."""
    lane: str | None = None
    """A lane of the only topic in `topics`."""
    has_error: bool = False  # implied by `error_contains`

    @property
    def searches(self) -> bool:
        """Whether each job has to be read: no index has the text of errors, or metadata."""
        return self.error_contains is not None or self.metadata is not None

    @property
    def passes_other_topics(self) -> bool:
        """Whether jobs of other topics are read too: no index has the completed jobs of a topic."""
        has_index = (self.schedule_id, self.lane, self.error_group) != (None, None, None)
        is_of_completed = self.statuses is None or JobStatus.COMPLETED in self.statuses
        return self.topics is not None and is_of_completed and not has_index

    def as_read(self) -> JobFilter:
        """Return the conditions that an index serves. There is one of the jobs with an error."""
        return replace(
            self,
            topics=None if self.passes_other_topics else self.topics,
            error_contains=None,
            metadata=None,
            has_error=self.has_error or self.error_contains is not None,
        )
