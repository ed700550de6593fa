"""Jobs as the verbs return them: their state, attempts, progress and steps, and which of them are unique.

A report of progress only remembers; it never waits. The heartbeat thread sends the newest one in place of a
heartbeat, at most once a second, and the report of the attempt's end has the last one.
docs/figures.md#progress
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from pulse import payload
from pulse.error_text import class_path_of, traceback_of
from pulse.errors import InvalidArgument
from pulse.messages import Items, Reader, check_duration, check_unicode
from pulse.payload import decode_json, decode_result, encode
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has come, as its handler reported it with `ctx.progress`."""

    fraction: float | None
    """Of the work, 0 to 1. None: not known."""
    text: str = ""
    cursor: Any = None
    """Where the next attempt continues: JSON values. None in lists, which leave it out."""
    attempt: int = 1
    """The attempt that reported it."""
    reported_at: datetime | None = None
    since: datetime | None = None
    """The fraction was `since_fraction` then."""
    since_fraction: float = 0.0

    @property
    def remaining(self) -> timedelta | None:
        """About how long the rest takes, counted from `reported_at`. None if that cannot be estimated."""
        if self.fraction is None or self.since is None or self.reported_at is None:
            return None
        done, span = self.fraction - self.since_fraction, self.reported_at - self.since
        if done <= 0 or span <= timedelta(0):
            return timedelta(0) if self.fraction == 1 else None
        return min(span * ((1 - self.fraction) / done), _LONGEST_ESTIMATE)


# Longer estimates are useless, and might not fit into a datetime.
_LONGEST_ESTIMATE = timedelta(days=3650)


read_progress = Reader(Progress, cursor=lambda message: decode_json(message.cursor))
"""Returns the progress in a message."""


def progress_message(progress: Progress) -> pb.Progress:
    """Return the message, for a context that a test makes."""
    return pb.Progress(
        fraction=progress.fraction,
        text=progress.text,
        cursor=encode(progress.cursor),
        attempt=progress.attempt,
    )


class JobStatus(StrEnum):
    """The state of a job."""

    PENDING = "PENDING"
    """Waits for its start time, or for a worker."""
    RUNNING = "RUNNING"
    """Held by a worker."""
    RETRYING = "RETRYING"
    """Failed. Runs again at `next_run_at`."""
    COMPLETED = "COMPLETED"
    """Its handler succeeded."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """Failed on its last attempt. `Pulse.retry` gives it more."""
    CANCELED = "CANCELED"
    """Canceled before it completed. `Pulse.retry` runs it again."""

    @property
    def is_finished(self) -> bool:
        """True for COMPLETED, DEAD_LETTERED and CANCELED."""
        return self in _FINISHED


_FINISHED = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not succeed."""

    attempt: int
    worker_id: str
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str
    """failed, discarded, timed_out, snoozed, suspended, lease_expired or canceled."""
    error: str
    """Its beginning. `JobInfo.last_error` has the error of the last attempt in full."""

    @property
    def error_class(self) -> str | None:
        """The class of the error, as in `JobInfo.error_class`."""
        return class_path_of(self.error)

    @property
    def traceback(self) -> str | None:
        """The traceback of the error, as in `JobInfo.traceback`: as much as `error` has of it."""
        return traceback_of(self.error)


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job. All times are aware and in UTC."""

    id: str
    status: JobStatus
    topic: str
    priority: int
    attempts: int
    max_attempts: int
    submitted_at: datetime | None
    next_run_at: datetime | None
    """While PENDING or RETRYING: the earliest start."""
    started_at: datetime | None
    """Of the last attempt."""
    finished_at: datetime | None
    lease_until: datetime | None
    """While RUNNING: the lease expires then unless the worker extends it."""
    worker_id: str | None
    """The worker that holds the job, or that finished it."""
    last_error: str | None
    """The error of the last failed attempt. Kept after a success."""
    idempotency_key: str | None
    schedule_id: str | None
    metadata: Mapping[str, str]
    payload: bytes
    """The stored bytes. Empty in lists, which leave it out."""
    error_group: str | None
    """The group of a dead letter. Dead letters with the same error share it."""
    history: tuple[Attempt, ...]
    """The attempts that did not succeed. Empty in lists, which leave it out."""
    snoozes: int = 0
    """Runs that were snoozed. They cost no attempt."""
    crashes: int = 0
    """Attempts that ended in a lost lease, since the last retry by an operator."""
    start_by: datetime | None = None
    """The job is canceled if it has not started by then. None: no limit, or it has started."""
    unique_key: str | None = None
    """The key of its `Unique`. Kept when it no longer holds."""
    unique_while: UniqueWhile | None = None
    """"waiting" or "live" while no other job may have the key. None: the key does not hold, or no longer."""
    lane: str | None = None
    """The key that the limits of its topic count by, such as a customer."""
    progress: Progress | None = None
    """The last stored report, perhaps of an earlier attempt. None once the job is completed."""
    result_bytes: bytes | None = None
    """The stored result of the handler. None if it returned None, and in lists."""
    steps: int = 0
    """How many steps are stored. `Pulse.steps` returns them."""
    suspensions: int = 0
    """Runs that ended with a sleep, or with the wait for a signal. They cost no attempt."""
    waits_for: str | None = None
    """The signal that its handler waits for; "": it sleeps until `next_run_at`. None: neither.

    Of several (`ctx.wait_for_any`), one in each line."""
    workflow_id: str | None = None
    """The workflow that it belongs to."""
    waits_for_jobs: bool = False
    """True while jobs of its workflow that it waits for have not all ended. It is PENDING meanwhile."""
    no_worker: str | None = None
    """A sentence while the job waits and no connected worker takes its topic. None in lists."""

    @property
    def result(self) -> Any:
        """The result of the handler, decoded as JSON; bytes that are not JSON stay bytes.

        `JobHandle.result` decodes it to the handler's return type.
        """
        return None if self.result_bytes is None else decode_result(self.result_bytes)

    @property
    def error_class(self) -> str | None:
        """The class of `last_error`, such as `shop.errors.PaymentDeclined`.

        None if there is no error, or no exception of the handler's: a lost lease has none, nor do
        `pulse.Retry` and `pulse.Discard`.
        """
        return None if self.last_error is None else class_path_of(self.last_error)

    @property
    def traceback(self) -> str | None:
        """The traceback of `last_error` as Python prints it, with its causes. None if it has no class.

        It is made from the stored text: without the frames of the SDK, and of a deep stack the first 5 and
        the last 10 frames.
        """
        return None if self.last_error is None else traceback_of(self.last_error)

    @property
    def args(self) -> Any:
        """The payload decoded as JSON, or None if it is empty."""
        return decode_json(self.payload)


@dataclass(frozen=True, slots=True)
class Page(Items[JobInfo]):
    """One page of jobs, newest first."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list_jobs`. None on the last page."""
    looked_back_to: datetime | None = None
    """Set if a list by topic, error or metadata got here before the page was full.

    A call reads 100,000 jobs, and by topic alone 400,000 to find one. `next_cursor` continues with
    older jobs."""


@dataclass(frozen=True, slots=True)
class FoundJobs(Items[JobInfo]):
    """Jobs that a search found, and how far it came."""

    jobs: tuple[JobInfo, ...]
    compared: int
    """How many jobs were compared. 0 without `compared_to`: the field is indexed."""
    compared_to: datetime | None
    """Jobs until then were compared. None: there are no older ones."""
    next_cursor: str | None
    """Pass it to the next `search_jobs`, for more matches or older jobs. None: there are none."""


job_info = Reader(
    JobInfo,
    id="job_id",
    unique_while="unique_scope",
    result_bytes="result",
    waits_for=lambda view: view.waiting.signal if view.HasField("waiting") else None,
)
"""Returns the job in a `JobView`."""
job_page = Reader(
    Page,
    next_cursor="next_page_token",
    # Of ListJobs alone.
    looked_back_to=lambda response: (
        response.looked_back_to.ToDatetime(tzinfo=UTC)
        if "looked_back_to" in response.DESCRIPTOR.fields_by_name and response.HasField("looked_back_to")
        else None
    ),
)
"""Returns the page in a response with jobs."""
found_jobs = Reader(FoundJobs, next_cursor="next_page_token")
"""Returns what a search found."""


class StepKind(StrEnum):
    """The kind of a step."""

    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """A step of a job: something done, a sleep, or a signal."""

    name: str
    kind: StepKind
    attempt: int
    """The attempt that stored it, or that waits for it."""
    started_at: datetime | None
    stored_at: datetime | None
    """None: a signal that has not come."""
    until: datetime | None = None
    """The end of a sleep, or of the wait for a signal."""
    size: int = 0
    """The size of the value in bytes."""
    timed_out: bool = False
    """Whether the signal did not come in time."""
    value_bytes: bytes | None = None
    """The value, if it was requested and is kept."""

    @property
    def value(self) -> Any:
        """The value as plain JSON values. Raises InvalidArgument if it is something else."""
        return None if self.value_bytes is None else decode_json(self.value_bytes, "value")


step_info = Reader(StepInfo, value_bytes="value")
"""Returns the step in a `StepView`."""


# ---------------------------------------------------------------- the progress that a handler reports

MAX_TEXT: Final = 200
MAX_CURSOR_BYTES: Final = 4 * 1024
# Control characters, halves of pairs, and separators of lines.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Kept(Enum):
    """The cursor of a report without a cursor: the last one is kept."""

    KEPT = "kept"

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final = Kept.KEPT
AnyCursor = Any | Literal[Kept.KEPT]


class Reported(NamedTuple):
    """One report. Numbers grow within an attempt."""

    fraction: float | None
    text: str
    cursor: bytes | None
    """JSON; empty: none. None: as it was before the attempt."""
    number: int


def check_report(fraction: object, text: object, cursor: AnyCursor, last: Reported | None) -> Reported:
    """Return the report. Raises InvalidArgument for values that cannot be stored or shown."""
    last_cursor, number = (None, 0) if last is None else (last.cursor, last.number)
    return Reported(
        None if fraction is None else _check_fraction(fraction),
        _check_text(text),
        last_cursor if cursor is KEPT else _encode_cursor(cursor),
        number + 1,
    )


def _check_fraction(fraction: object) -> float:
    if type(fraction) is float and 0.0 <= fraction <= 1.0:  # handlers call this in their loops
        return fraction
    try:
        number = float("nan") if isinstance(fraction, str | bytes | bool) else float(fraction)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if math.isfinite(number) and 0 <= number <= 1:
        return number
    raise InvalidArgument(
        f"The progress {_short(fraction)} is not a fraction of the work: give a number from 0 to 1, such as "
        "done / total, or None if it is not known."
    )


def _check_text(text: object) -> str:
    if type(text) is str and len(text) <= MAX_TEXT and text.isprintable():
        return text
    if not isinstance(text, str):
        raise InvalidArgument(f"The text of a progress is of type {type(text).__name__}: give a str.")
    if len(text) > MAX_TEXT:
        raise InvalidArgument(
            f"The text of a progress has {len(text)} characters; {MAX_TEXT} are allowed at the most. "
            "Log what is longer."
        )
    if any(unicodedata.category(one) in _UNPRINTABLE for one in text):
        raise InvalidArgument(
            f"The text of a progress, {_short(text)}, has line breaks or control characters: it is shown in "
            "one line."
        )
    return text


def _encode_cursor(cursor: object) -> bytes:
    if isinstance(cursor, bytes):
        raise InvalidArgument("The cursor is of type bytes, which JSON cannot hold: decode it to a str.")
    try:
        data = payload.encode(cursor)
    except InvalidArgument as error:
        raise InvalidArgument(f"The cursor cannot be stored. {error.message}") from None
    if len(data) > MAX_CURSOR_BYTES:
        raise InvalidArgument(
            f"The cursor has {len(data)} bytes as JSON; {MAX_CURSOR_BYTES} are allowed at the most. Store "
            "where the work continues, such as an id or an offset, and not the work itself."
        )
    return data


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


# ---------------------------------------------------------------- unique jobs

UniqueWhile: TypeAlias = Literal["waiting", "live"]
"""The jobs among which a key is unique: jobs not started yet, or all unfinished jobs."""
OnConflict: TypeAlias = Literal["skip", "replace", "debounce", "throttle"]
"""How to enqueue a job if another job holds its key."""

_LONGEST_KEY = 255  # characters, as the server allows
_LONGEST_PERIOD = timedelta(days=366)  # as the server allows


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job of a topic and key waits: `unique=pulse.Unique("shop-7")`, or `by="shop_id"`.

    `by` makes the key of one or several fields of the arguments. `while_="live"` counts jobs that run or are
    retried, too. If there is one, `on_conflict` decides: "skip" stores nothing and returns that job as a
    duplicate; "replace" gives it the new arguments and options; "debounce" does so and starts it once
    `period` has passed without a further enqueue, at most `longest` after the first (ten periods if not
    given); "throttle" is "skip", also within `period` after the last job was stored.
    """

    key: str | None = None
    _: KW_ONLY
    by: str | Sequence[str] | None = None
    while_: UniqueWhile = "waiting"
    on_conflict: OnConflict = "skip"
    period: timedelta | None = None
    longest: timedelta | None = None

    def __post_init__(self) -> None:
        _check_key(self.key, self.by)
        if self.while_ not in get_args(UniqueWhile):
            raise InvalidArgument(
                f"while_={self.while_!r} is not known: use {_listed(get_args(UniqueWhile))}."
            )
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidArgument(
                f"on_conflict={self.on_conflict!r} is not known: use {_listed(get_args(OnConflict))}."
            )
        _check_times(self.while_, self.on_conflict, self.period, self.longest)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `by`, sorted."""
        return (self.by,) if isinstance(self.by, str) else tuple(sorted(self.by or ()))

    def key_of(self, payload: bytes) -> str:
        """Return the key of a job with this payload. Raises InvalidArgument if it lacks a field of `by`."""
        if self.key is not None:
            return self.key
        values = _values(payload, self.fields)
        key = ",".join(f"{name}={_text(values[name])}" for name in self.fields)
        if len(key) <= _LONGEST_KEY:
            return key
        return f"sha256={hashlib.sha256(key.encode()).hexdigest()}"


def _check_key(key: object, by: object) -> None:
    if (key is None) == (by is None):
        raise InvalidArgument(
            "Give Unique a key, such as 'shop-7', or by, the fields of the arguments that make it: one of "
            "both."
        )
    if key is not None:
        if not isinstance(key, str) or not key:
            raise InvalidArgument(f"The key of Unique has to be a text that is not empty, not {key!r}.")
        check_unicode("The key of Unique", key)
        if len(key) > _LONGEST_KEY:
            raise InvalidArgument(
                f"The key of Unique has {len(key)} characters; {_LONGEST_KEY} are allowed at the most."
            )
        return
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, list | tuple) or not names or not all(n and isinstance(n, str) for n in names):
        raise InvalidArgument(f"by has to be the name of a field, or a list of names, not {by!r}.")


def _check_times(while_: str, on_conflict: str, period: object, longest: object) -> None:
    if on_conflict in ("replace", "debounce") and while_ != "waiting":
        raise InvalidArgument(
            f'on_conflict="{on_conflict}" needs while_="waiting": a job that runs cannot be replaced.'
        )
    has_period = on_conflict in ("debounce", "throttle")
    if has_period and period is None:
        raise InvalidArgument(f'on_conflict="{on_conflict}" needs a period, such as timedelta(seconds=30).')
    if period is not None:
        if not has_period:
            raise InvalidArgument(
                f'period belongs to on_conflict="debounce" and "throttle", not to "{on_conflict}".'
            )
        _check_period("period", period)
    if longest is not None:
        if on_conflict != "debounce":
            raise InvalidArgument(f'longest belongs to on_conflict="debounce", not to "{on_conflict}".')
        _check_period("longest", longest)
        if isinstance(period, timedelta) and isinstance(longest, timedelta) and longest < period:
            raise InvalidArgument(
                f"longest={longest} is below period={period}: one enqueue waits for longer."
            )


def _check_period(name: str, value: object) -> None:
    check_duration(name, value, example="seconds=30")
    assert isinstance(value, timedelta)
    if value > _LONGEST_PERIOD:
        raise InvalidArgument(
            f"{name} has to be at most {_LONGEST_PERIOD.days} days, but {value} was given: others may need a "
            "job with this key."
        )


def _values(payload: bytes, names: Sequence[str]) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(payload or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"The arguments have no fields, and Unique makes its key of {_listed(names)}: give it a key "
            "instead."
        )
    if missing := [name for name in names if name not in found]:
        raise InvalidArgument(
            f"The arguments have no field {missing[0]!r}, of which Unique makes its key. "
            f"They have {_listed(sorted(found)) or 'none'}; one that is left out for its default has to be "
            "given."
        )
    return found


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _listed(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words)
