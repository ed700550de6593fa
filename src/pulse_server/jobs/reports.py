"""What statements about claimed jobs take and return.

That is slots of workers, heartbeats, reports, promotions and undos. A report that the fence refused is judged
here: a repeat, or refused with a sentence. The jobs that one statement completed are kept by topic and not
one by one: a batch may have a thousand. docs/figures.md#undo
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple, TypeAlias

from pulse_server.base.errors import InvalidTransition, JobLocked, JobNotFound
from pulse_server.jobs.rules import (
    Claim,
    ClaimedJob,
    Job,
    JobStatus,
    Level,
    Outcome,
    Progress,
    ProgressReport,
)

# Payload bytes per claim. More would only wait in memory until it can be sent (docs/adr/0038).
CLAIM_BYTES = 8 * 1024 * 1024


class Slots(NamedTuple):
    """Free slots: one entry per wanted job, each an index into `workers`, in dispatch order.

    `confirms` states for each worker whether it can send a heartbeat before it starts a job. A
    claim stops early once its payloads reach `most_bytes`. A claim that fills all slots uses
    `packed` instead of `order`, unless `packed` is empty or the payloads reach `packed_bytes`.
    docs/figures.md#dealing-jobs-to-workers

    In a claim with limits, jobs in the first `running` slots would start at once, and other jobs
    would wait in their workers. None: all jobs would start at once. docs/figures.md#limited-jobs-ahead
    """

    workers: Sequence[str]
    confirms: Sequence[bool]
    order: Sequence[int]
    most_bytes: int = CLAIM_BYTES
    packed: Sequence[int] = ()
    packed_bytes: int = 0
    running: int | None = None

    def is_filled_by(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Whether more ready jobs may remain after a claim that returned these."""
        return len(jobs) == len(self.order) or sum(len(job.payload) for job in jobs) >= self.most_bytes


class Taker(NamedTuple):
    """A worker with a free slot for one job. `confirms` as in Slots."""

    worker_id: str
    confirms: bool


# A database whose statements take longer than this, with the wait for the statement before, times out anyway.
_LONGEST_CONFIRMATION = timedelta(seconds=7.5)
# A worker reads its clock, and then calls the handler.
_MARGIN = timedelta(seconds=1)
# A worker starts a job within a second of its claim, or confirms it first.
_START_WITHIN = timedelta(seconds=1)
NO_PROGRESS: Mapping[Claim, ProgressReport] = {}


def longest_confirmation(lease: timedelta) -> timedelta:
    """How long after a confirmation was sent its handler may start, however slow the database is."""
    return min(lease / 4, _LONGEST_CONFIRMATION)


def rest_of_canceled(lease: timedelta) -> timedelta:
    """How long after a cancel a worker may still start the job: no retry is due before.

    docs/figures.md#canceled-jobs-that-are-retried
    """
    return max(_START_WITHIN, longest_confirmation(lease)) + _MARGIN


class Beat(NamedTuple):
    """A heartbeat that reports progress, or confirms a claim right before its handler starts."""

    claim: Claim
    progress: ProgressReport | None = None
    start_by: float | None = None
    """On the lease clock. A confirmation stored later does not count, and starts no handler."""


class StoredProgress(NamedTuple):
    """Progress as it was stored, without its cursor."""

    claim: Claim
    topic: str
    progress: Progress


class ExtendedLeases(NamedTuple):
    """The claims that hold.

    `extended`: for another lease. `over`: not extended, because the time limit of the attempt has passed.
    `late`: extended, but the confirmation came too late. The attempt does not count yet, and must not start.
    `confirmed_until`: the end of the lease for each claim that was confirmed.
    """

    extended: set[Claim]
    over: set[Claim]
    late: set[Claim]
    stored: list[StoredProgress]
    confirmed_until: dict[Claim, datetime]


class BeatAnswer(NamedTuple):
    """The claims whose leases were not extended.

    `lost`: the claim no longer holds. `unknown`: it still does, but another session of the database has its
    row, and the lease could not be extended; or its confirmation came too late.
    """

    lost: list[Claim]
    unknown: list[Claim]


@dataclass(frozen=True, slots=True)
class Promotion:
    """The promoter's result: topics with new ready jobs, and the time until the next job is due."""

    promoted: int
    topics: frozenset[str]
    next_due_in: timedelta | None
    levels: tuple[Level, ...] = field(default=(), compare=False)  # where they are, and since when


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a walk over topics: promoted topics, and where the next walk continues."""

    topics: frozenset[str]
    last_topic: str
    levels: tuple[Level, ...] = field(default=(), compare=False)  # where they are, and since when


class FailureReport(NamedTuple):
    """An attempt failed: its error, and when the next one is due if the worker sets it."""

    claim: Claim
    error: str = ""
    retry_after: timedelta | None = None
    discard: bool = False
    error_group: str = ""
    """The group of the job if this failure dead-letters it."""
    timed_out: bool = False
    """Whether the attempt ran into its time limit."""
    retry_after_is_policy: bool = False
    """Whether an operator's backoff wins over retry_after."""
    progress: ProgressReport | None = None
    """The last progress, if it was not stored yet."""
    in_transaction: bool = False
    """Whether the handler completed the job in its own transaction. Uncommitted: it failed."""


class SnoozeReport(NamedTuple):
    """An attempt ended without a result: the handler asked to run the job again after the delay."""

    claim: Claim
    delay: timedelta
    reason: str = ""
    progress: ProgressReport | None = None


class ResultReport(NamedTuple):
    """An attempt succeeded, and its handler returned something."""

    claim: Claim
    result: bytes


class SuspendReport(NamedTuple):
    """An attempt ended without a result: its handler sleeps, or waits for a signal. ADR-0069"""

    claim: Claim
    step: str
    """The step that is stored for it."""
    signal: str = ""
    """The signals that end the wait, one in each line. Empty: it sleeps."""
    delay: timedelta | None = None
    """When it runs again, without the signal. None: not before it comes."""
    progress: ProgressReport | None = None


class NewStep(NamedTuple):
    """A step that the holder of the claim has run."""

    claim: Claim
    name: str
    value: bytes
    ran: timedelta = timedelta(0)

    @property
    def size(self) -> int:
        """How many bytes count towards the limit of its job."""
        return len(self.name.encode()) + len(self.value)


Report: TypeAlias = Claim | ResultReport | FailureReport | SnoozeReport | SuspendReport
"""How an attempt ended. A claim alone reports a success without a result: one tuple for a job, and there may
be thousands."""


def claim_of(report: Report) -> Claim:
    return report if isinstance(report, Claim) else report.claim


def stands(claim: Claim, job: Job) -> bool:
    """Whether the claim holds the job, so that only a lock can have kept its report out."""
    return job.locked_by is not None and claim.covers(Claim(job.id, job.locked_by, job.attempts, job.run))


def is_repeat(report: Report, job: Job) -> bool:
    """Whether this very report was taken before: its answer was lost and the worker sent it again."""
    claim = claim_of(report)
    if isinstance(report, Claim | ResultReport):
        return _has_completed(claim, job)
    if isinstance(report, FailureReport) and report.in_transaction and _has_completed(claim, job):
        return True
    if claim.attempt is None:
        return False
    outcomes = _outcomes(report)
    return any(
        past.outcome in outcomes and claim.covers(Claim(job.id, past.worker_id, past.attempt, past.run))
        for past in job.history
    )


def _has_completed(claim: Claim, job: Job) -> bool:
    ended = Claim(job.id, job.finished_by, job.attempts, job.run)
    return job.status is JobStatus.COMPLETED and claim.covers(ended)


def _outcomes(report: FailureReport | SnoozeReport | SuspendReport) -> set[Outcome]:
    if not isinstance(report, FailureReport):
        return {Outcome.SUSPENDED if isinstance(report, SuspendReport) else Outcome.SNOOZED}
    # The server may have ended the attempt for its time limit: a failure that is reported then came too late.
    return {Outcome.FAILED, Outcome.DISCARDED, *([Outcome.TIMED_OUT] if report.timed_out else [])}


def refusal(report: Report, job: Job) -> InvalidTransition:
    """Why the report was refused, as a sentence for the worker that names the job's holder."""
    claim = claim_of(report)
    if job.status is not JobStatus.RUNNING:
        problem = f"Job {job.id} is {job.status}, not RUNNING: the report was not taken."
    elif claim.attempt is not None and claim.attempt != job.attempts:
        problem = (
            f"Job {job.id} is at attempt {job.attempts}: the report of attempt {claim.attempt} came too late."
        )
    elif claim.run is not None and claim.run != job.run:
        problem = f"Job {job.id} was claimed again: the report of the claim before came too late."
    else:
        problem = f"Job {job.id} is held by another worker: the report was not taken."
    return InvalidTransition(job.id, problem)


def lost(claim: Claim, job: Job | None) -> InvalidTransition | JobLocked | JobNotFound:
    """Why a claim does not hold."""
    if job is None:
        return JobNotFound(claim.job_id)
    return JobLocked(job.id) if stands(claim, job) else refusal(claim, job)


class TopicCompletions(NamedTuple):
    """Completed jobs of one topic: how long each attempt took, and where its claim was in the request."""

    topic: str
    ran_seconds: Sequence[float]
    places: Sequence[int]
    """Counted from 1, in the order of `ran_seconds`."""
    in_workflows: bool = False
    """Whether a job belongs to a workflow, which then has a notice."""


class Completions(Set[Claim]):
    """The requested claims that counted: at most one per job.

    The set is built when it is read. That is rare: usually every claim counted and nothing watches.
    """

    def __init__(self, requested: Sequence[Claim], by_topic: Sequence[TopicCompletions]) -> None:
        self._requested = requested
        self.by_topic = by_topic

    def with_topics(self) -> Iterator[tuple[Claim, str]]:
        requested = self._requested
        for topic, _, places, _ in self.by_topic:
            for place in places:
                yield requested[place - 1], topic

    def __len__(self) -> int:
        return sum([len(of_topic.places) for of_topic in self.by_topic])

    def __iter__(self) -> Iterator[Claim]:
        return (claim for claim, _ in self.with_topics())

    def __contains__(self, claim: object) -> bool:
        return claim in self._claims

    @cached_property
    def _claims(self) -> frozenset[Claim]:
        return frozenset(self)


NO_COMPLETIONS = Completions((), ())


class Arrival(NamedTuple):
    """One call of a function of the interface whose transaction has been committed."""

    topic: str
    jobs: int
    """How many are new. 0: the job was replaced, or completed."""
    ids: Sequence[str]
    """The new jobs; of many, the first. Or the job that was replaced."""
    level: Level | None = None
    """Where jobs became ready. None: nowhere."""
    completed: Claim | None = None
    """The claim that completed the job."""
    ran_seconds: float = 0.0
    replaced_by: str | None = None
    """The role of the database that replaced a waiting job."""


def levels_of(arrivals: Sequence[Arrival], seconds: float) -> list[Level]:
    """Where jobs became ready, as of a statement that was sent this many seconds ago."""
    levels = [arrival.level for arrival in arrivals if arrival.level is not None]
    return [level._replace(age_seconds=level.age_seconds + seconds) for level in levels]


def completions_of(arrivals: Sequence[Arrival]) -> Completions:
    """The jobs that were completed."""
    ends = [(arrival, arrival.completed) for arrival in arrivals if arrival.completed is not None]
    by_topic = [
        TopicCompletions(arrival.topic, [arrival.ran_seconds], [place], in_workflows=True)  # perhaps
        for place, (arrival, _) in enumerate(ends, 1)
    ]
    return Completions([claim for _, claim in ends], by_topic)


class ActedOn(NamedTuple):
    """A job that an action changed last."""

    job_id: str
    can_be_undone: bool
    was_running: bool
    """The action canceled it while it ran."""


class Restored(NamedTuple):
    """A job after an undo, and its status before. An undone change of priority keeps the status."""

    job: Job
    before: JobStatus


@dataclass(frozen=True, slots=True)
class Fired:
    """A step that was taken. `job_id` is None where it made no new job.

    `taken_id` is the id that the occurrence should have had, where a job that no schedule made has it.
    """

    schedule_id: str
    topic: str
    occurrence: datetime
    job_id: str | None
    taken_id: str | None = None
    is_held: bool = False
    """Whether it made none because a job of the schedule is unfinished."""
