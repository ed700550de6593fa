"""The nouns: a job to insert, a stored job, a claim on it, and the outcomes.

Types that exist once per job on the hot path are named tuples: as immutable as a frozen dataclass,
and made in a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from pulse_server.domain.progress import Progress
from pulse_server.domain.status import JobStatus
from pulse_server.domain.steps import Step
from pulse_server.domain.unique import Unique


class NewJob(NamedTuple):
    """A job to insert. It starts at `run_at`, or `delay` after the insert, or at once."""

    id: str
    topic: str
    payload: bytes
    priority: int
    max_attempts: int
    idempotency_key: str | None = None
    metadata: Mapping[str, str] | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    schedule_id: str | None = None
    start_within: timedelta | None = None
    """The job is canceled if it has not started this long after it was due."""
    lane: str | None = None
    unique: Unique | None = None

    @property
    def starts_at_once(self) -> bool:
        return self.delay is None and self.run_at is None

    @property
    def may_be_ready(self) -> bool:
        """Whether it may be claimed at once. For a `run_at` the database's clock decides."""
        return self.delay is None


class Submitted(NamedTuple):
    """The answer to a submit. `duplicate`: the job was there already and nothing was inserted."""

    job_id: str
    duplicate: bool
    is_taken: bool = False
    """Whether it was handed over to a worker with a free slot."""
    is_replaced: bool = False
    """Of a duplicate: whether the stored job now has the payload and options of this submit."""
    submitted_at: datetime | None = None
    """When the job was stored; of jobs of one statement, when the first was. None: not known. It is not
    compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Submitted) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


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
