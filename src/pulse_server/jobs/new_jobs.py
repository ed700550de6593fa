"""A job to store, the answer to a submit, and jobs that share all options, as columns.

A thousand jobs with the same options take a few objects, not a thousand. Any layer may treat them as a plain
sequence of jobs. The path of a bulk submit uses the columns.

Of unique jobs at most one of a topic and key waits, or lives. ADR-0066
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar, overload

from pulse_server.base.bounds import MAX_UNIQUE_KEY_LENGTH, check_text
from pulse_server.base.errors import InvalidArgument, PulseError

# A debounce without a bound may delay the job by at most this many periods.
LONGEST_IN_PERIODS = 10
# A shorter period has no effect: a submit takes longer.
SHORTEST_PERIOD = timedelta(milliseconds=1)
# All users of the topic share the key: one user must not block the jobs of another for years.
LONGEST_PERIOD = timedelta(days=366)


Word = TypeVar("Word", bound=StrEnum)


class Scope(StrEnum):
    """Until when a job holds its key."""

    WAITING = "waiting"  # until its first start
    LIVE = "live"  # until it is finished


class OnConflict(StrEnum):
    """How to handle a new job whose key another job holds."""

    SKIP = "skip"
    REPLACE = "replace"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"


class Unique(NamedTuple):
    """The key of a job, and how to handle another job with the same key."""

    key: str
    scope: Scope = Scope.WAITING
    on_conflict: OnConflict = OnConflict.SKIP
    period: timedelta | None = None
    """The period of a debounce or a throttle."""
    longest: timedelta | None = None
    """How long a debounce may delay the job, from its first submit on."""

    @property
    def replaces(self) -> bool:
        return self.on_conflict in (OnConflict.REPLACE, OnConflict.DEBOUNCE)

    @property
    def throttle(self) -> timedelta | None:
        return self.period if self.on_conflict is OnConflict.THROTTLE else None


class UniqueHolder(NamedTuple):
    """The job that holds a unique key."""

    job_id: str
    key: str


def check_unique(
    key: str,
    scope: str,
    on_conflict: str,
    period: timedelta | None,
    longest: timedelta | None,
    *,
    starts_at_once: bool,
) -> Unique:
    """Return the requested rule. Raises InvalidArgument for impossible or contradictory options."""
    if not key:
        raise InvalidArgument("unique.key", "is empty: name what there should be one job for.")
    check_text(key, "unique.key", MAX_UNIQUE_KEY_LENGTH)
    unique = Unique(
        key,
        _one_of(Scope, scope or Scope.WAITING, "unique.scope"),
        _one_of(OnConflict, on_conflict or OnConflict.SKIP, "unique.on_conflict"),
        period,
        longest,
    )
    mode = unique.on_conflict
    has_period = mode in (OnConflict.DEBOUNCE, OnConflict.THROTTLE)
    if has_period and period is None:
        raise InvalidArgument("unique.period", f"is missing: {mode} needs one.")
    if period is not None:
        if not has_period:
            raise InvalidArgument("unique.period", f"belongs to debounce and throttle, not to {mode}.")
        _check_period(period, "unique.period")
    if unique.replaces and unique.scope is not Scope.WAITING:
        raise InvalidArgument(
            "unique.on_conflict",
            f"is {mode}, which needs the scope waiting: a job that runs cannot be replaced.",
        )
    if mode is not OnConflict.DEBOUNCE:
        if longest is not None:
            raise InvalidArgument("unique.longest", f"belongs to debounce, not to {mode}.")
        return unique
    assert period is not None
    if not starts_at_once:
        raise InvalidArgument(
            "unique.on_conflict", "is debounce, which sets when the job starts: give no delay and no run_at."
        )
    if longest is None:
        longest = min(period * LONGEST_IN_PERIODS, LONGEST_PERIOD)
    else:
        _check_period(longest, "unique.longest")
        if longest < period:
            raise InvalidArgument("unique.longest", "is below the period: a single submit waits for longer.")
    return unique._replace(longest=longest)


def _one_of(words: type[Word], given: str, field: str) -> Word:
    if given not in [word.value for word in words]:
        raise InvalidArgument(field, f"{given[:40]!r} is not known: use {', '.join(words)}.")
    return words(given)


def _check_period(period: timedelta, field: str) -> None:
    if period < SHORTEST_PERIOD:
        raise InvalidArgument(field, "is below a millisecond: give a longer one.")
    if period > LONGEST_PERIOD:
        raise InvalidArgument(
            field, f"is longer than {LONGEST_PERIOD.days} days: others may need a job with this key."
        )


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


ID_BYTES = 16
_ID_DIGITS = 2 * ID_BYTES


class UniformJobs(Sequence[NewJob]):
    """New jobs that differ only in their ids, 16 bytes each, and in their payloads."""

    __slots__ = ("ids", "payloads", "template")

    def __init__(self, template: NewJob, ids: bytes, payloads: list[bytes]) -> None:
        self.template = template
        self.ids = ids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[NewJob]:
        for digits, payload in zip(self.id_digits, self.payloads, strict=True):
            yield self.template._replace(id=_canonical(digits), payload=payload)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...
    @overload
    def __getitem__(self, place: slice) -> UniformJobs: ...
    def __getitem__(self, place: int | slice) -> NewJob | UniformJobs:
        if isinstance(place, int):
            place = range(len(self))[place]
            (job,) = self[place : place + 1]
            return job
        begin, end, step = place.indices(len(self))
        if step != 1:
            raise ValueError("Uniform jobs are sliced without a step.")
        return UniformJobs(
            self.template, self.ids[begin * ID_BYTES : end * ID_BYTES], self.payloads[begin:end]
        )

    @property
    def id_digits(self) -> list[str]:
        """The ids in hexadecimal, without dashes."""
        digits = self.ids.hex()
        return [digits[at : at + _ID_DIGITS] for at in range(0, len(digits), _ID_DIGITS)]


class AllInserted(Sequence[Submitted]):
    """The answers if every job was inserted and no job was handed over."""

    __slots__ = ("_jobs", "submitted_at")

    def __init__(self, jobs: Sequence[NewJob], submitted_at: datetime | None = None) -> None:
        """`submitted_at`: when the first job was stored."""
        self._jobs = jobs
        self.submitted_at = submitted_at

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Submitted]:
        for job in self._jobs:
            yield Submitted(job.id, False, submitted_at=self.submitted_at)

    @overload
    def __getitem__(self, place: int) -> Submitted: ...
    @overload
    def __getitem__(self, place: slice) -> AllInserted: ...
    def __getitem__(self, place: int | slice) -> Submitted | AllInserted:
        if isinstance(place, int):
            return Submitted(self._jobs[place].id, False, submitted_at=self.submitted_at)
        return AllInserted(self._jobs[place], self.submitted_at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


def inserted_and_taken(
    jobs: Sequence[NewJob], answers: Sequence[Submitted | PulseError]
) -> tuple[Sequence[NewJob], set[str]]:
    """The jobs that were inserted, and the ids of those that were handed over."""
    if isinstance(answers, AllInserted):
        return jobs, set()
    inserted = [
        (job, answer.is_taken)
        for job, answer in zip(jobs, answers, strict=True)
        if isinstance(answer, Submitted) and not answer.duplicate
    ]
    return [job for job, _ in inserted], {job.id for job, is_taken in inserted if is_taken}


def kinds(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Jobs that have every topic, priority and start among these. Their ids and payloads are any."""
    return (jobs.template,) if isinstance(jobs, UniformJobs) and jobs else jobs


def topics_of(jobs: Sequence[NewJob]) -> list[str]:
    """The topic of each job."""
    if isinstance(jobs, UniformJobs):
        return [jobs.template.topic] * len(jobs)
    return [job.topic for job in jobs]


def _canonical(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
