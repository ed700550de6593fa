"""Stores jobs: the options of an enqueue, the request, how it is sent, and the meaning of its answer.

Concurrent callers share a call, and a call without an answer is repeated. Every job has its id before it is
first sent, so a repeat stores nothing twice.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Literal, TypedDict, TypeVar

import grpc.aio

from pulse import failpoints, tuning
from pulse.errors import ClientClosed, InvalidArgument, PulseError, Unavailable, error_for_code
from pulse.ids import uuid7
from pulse.jobs.handles import JobHandle
from pulse.jobs.models import Unique
from pulse.messages import check_duration, check_payload, check_timedelta
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff, is_refused_for_now, is_retryable
from pulse.wire.streams import Coalescer, Line, batch_bounds

MOST_ATTEMPTS = 1_000
"""The server's bound."""


def check_attempts(max_attempts: object) -> None:
    """Raise InvalidArgument for a number of attempts that the server would refuse."""
    _check_int("max_attempts", max_attempts, 1, MOST_ATTEMPTS)


def check_priority(priority: object) -> None:
    """Raise InvalidArgument for a priority that cannot be sent."""
    _check_int("priority", priority, -(2**31), 2**31 - 1)


def check_values(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a wrong number or duration. For handlers, enqueues and schedules.

    An option that is None counts as missing.
    """
    for name, check in _CHECKS.items():
        if (value := options.get(name)) is not None:
            check(value)


_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "delay": partial(check_timedelta, "delay"),
    "start_within": partial(check_duration, "start_within"),
    "timeout": partial(check_duration, "timeout"),
    "max_attempts": check_attempts,
    "priority": check_priority,
}


def _check_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(
            f"{name} has to be a whole number from {least:,} to {most:,}, but {value!r} was given."
        )


Verb = TypeVar("Verb", bound=Callable[..., Any])


class SharedOptions(TypedDict, total=False):
    """The options of an enqueue that many jobs can share."""

    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int | None
    start_within: timedelta | None
    lane: str | None
    metadata: Mapping[str, str] | None
    unique: Unique | Literal[False] | None


class ItemOptions(SharedOptions, total=False):
    """The options of one item of `enqueue_many`."""

    key: str | None
    job_id: str | None


class ManyOptions(SharedOptions, total=False):
    """The options of `enqueue_many`."""

    timeout: timedelta | None


class EnqueueOptions(ItemOptions, ManyOptions, total=False):
    """The options of `enqueue`."""


OPTIONS = frozenset(EnqueueOptions.__annotations__)
_DEFAULTS: Mapping[str, object] = {"catch_up": "one", "overlap": "allow", "handle_signals": True}


def takes_options(options: type[Any]) -> Callable[[Verb], Verb]:
    """Show these options one by one in the signature of a verb, as `help()` and the reference print it.

    Type checkers see them by `Unpack`.
    """
    shown = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=annotation.__forward_arg__,
        )
        for name, annotation in options.__annotations__.items()
    ]

    def show(verb: Verb) -> Verb:
        signature = inspect.signature(verb)
        own = list(signature.parameters.values())[:-1]
        verb.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
        return verb

    return show


def check_known(what: str, options: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise InvalidArgument for an option that there is not."""
    if unknown := sorted(options.keys() - known):
        names = ", ".join(sorted(known))
        raise InvalidArgument(f"{what} has no option {unknown[0]!r}. Its options are {names}.")


def check_shared_unique(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for options of `enqueue_many` that give all items one unique key."""
    if (unique := options.get("unique")) and getattr(unique, "key", None) is not None:
        raise InvalidArgument(
            "unique with a key makes one job of all items: give it `by`, the fields that make the key of "
            "each."
        )


# ---------------------------------------------------------------- the request

_FIELDS = pb.SubmitJobRequest.DESCRIPTOR.fields_by_name
_RENAMED = {"key": "idempotency_key"}
# The options that are set in the request as they are, with their types. The others have lines of their own.
_SCALARS: Mapping[str, type] = {
    option: str if sent.type == sent.TYPE_STRING else int
    for option in ItemOptions.__annotations__
    if option not in ("job_id", "max_attempts")
    and (sent := _FIELDS[_RENAMED.get(option, option)]).message_type is None
}
Outcome = JobHandle[Any] | PulseError


def make_submission(
    topic: str,
    payload: bytes,
    handles: type[JobHandle[Any]],
    options: ItemOptions,
    default_attempts: int | None = None,
) -> Submission:
    """Return the request for a job. Raises InvalidArgument for values that cannot be sent, or are too large.

    `handles` is the class of the handle that the caller gets. An operator's number of attempts wins over
    `default_attempts`, and `max_attempts` over both.
    """
    check_payload(payload)
    delay, run_at = options.get("delay"), options.get("run_at")
    max_attempts, start_within = options.get("max_attempts"), options.get("start_within")
    job_id, unique = options.get("job_id"), options.get("unique")
    if delay is not None and run_at is not None:
        raise InvalidArgument("Give delay or run_at, not both: each sets when the job may start.")
    if run_at is not None and (not isinstance(run_at, datetime) or run_at.utcoffset() is None):
        raise InvalidArgument(
            f"run_at={run_at!r} is not a datetime, or has no time zone. "
            "Use an aware datetime, such as datetime.now(UTC) + …."
        )
    if delay is not None:
        check_timedelta("delay", delay)
    try:
        request = pb.SubmitJobRequest()
        request.topic, request.payload, request.job_id = topic, payload, job_id or uuid7()
        # Most jobs set no option, and protobuf is slow even for a None.
        for option, value in options.items():
            if value is not None and value != 0 and option in _SCALARS:
                setattr(request, _RENAMED.get(option, option), _not_empty(option, value))
        if run_at is not None:
            request.run_at.FromDatetime(run_at)
        if delay is not None:
            request.delay.FromTimedelta(delay)
        if max_attempts is not None:
            check_attempts(max_attempts)
            request.max_attempts = max_attempts
        elif default_attempts is not None:
            request.max_attempts, request.max_attempts_is_default = default_attempts, True
        if start_within is not None:
            check_duration("start_within", start_within)
            request.start_within.FromTimedelta(start_within)
        if (metadata := options.get("metadata")) is not None:
            request.MergeFrom(pb.SubmitJobRequest(metadata=metadata))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(_refused_value(topic, options, error)) from None
    if unique:
        _make_unique(request, unique)
    if (size := request.ByteSize()) > tuning.MESSAGE_BYTES:
        raise InvalidArgument(
            f"The job has {size} bytes with its options, and {tuning.MESSAGE_BYTES} are allowed at the most. "
            "Store large data elsewhere and send a reference to it."
        )
    return Submission(request, handles, job_id is None, bool(unique))


def _not_empty(option: str, value: object) -> object:
    if value == "":  # on the wire it would be none
        raise InvalidArgument(f'{option}="" is not a {option}: give None for a job without one.')
    return value


def _make_unique(request: pb.SubmitJobRequest, unique: Unique) -> None:
    if not isinstance(unique, Unique):
        raise InvalidArgument(f"unique has to be a pulse.Unique(…), but {unique!r} was given.")
    if unique.on_conflict == "debounce" and request.WhichOneof("start"):
        raise InvalidArgument(
            "Give no delay and no run_at with a debounce: its period sets when the job starts."
        )
    wire = request.unique
    wire.key = unique.key_of(request.payload)
    wire.scope, wire.on_conflict = unique.while_, unique.on_conflict
    if unique.period is not None:
        wire.period.FromTimedelta(unique.period)
    if unique.longest is not None:
        wire.longest.FromTimedelta(unique.longest)


@dataclass(slots=True)  # not frozen: freezing costs more than the rest of the constructor
class Submission:
    """One job to store."""

    request: pb.SubmitJobRequest
    handles: type[JobHandle[Any]]
    id_is_ours: bool
    is_unique: bool = False

    @property
    def size(self) -> int:
        """How many bytes it adds to a message, but for its length. Grows with a context of tracing."""
        return self.request.ByteSize()

    def inserted(self, submitted_at: datetime | None) -> JobHandle[Any]:
        """Return the handle of a job that was stored and is no duplicate."""
        return self.handles(self.request.job_id, self.request.topic, False, False, submitted_at)

    def ignored(self) -> PulseError:
        """Return the error for a unique job that the server did not store because it is too old."""
        return Unavailable(
            "The server is of a version without unique jobs, and did not store this one. Upgrade pulsed, or "
            "enqueue without `unique`."
        )

    def settle(self, result: pb.SubmitResult) -> Outcome:
        """Return the handle or the error of the server's answer."""
        request = self.request
        return settled(result, request.job_id, request.topic, self.handles, id_is_ours=self.id_is_ours)


def message_of(submissions: Sequence[Submission]) -> pb.StreamSubmitsRequest:
    """Return the message with these jobs. Unique jobs have to come last."""
    message = pb.StreamSubmitsRequest()
    request = message.request
    unique = [submission.request for submission in submissions if submission.is_unique]
    plain = submissions[: len(submissions) - len(unique)]
    request.jobs.extend([submission.request for submission in plain])
    request.unique_jobs.extend(unique)
    # Only without unique jobs: a server without unique jobs would answer for plain jobs alone.
    request.brief = not unique
    return message


def outcomes_of(submissions: Sequence[Submission], response: pb.SubmitJobsResponse) -> list[Outcome]:
    """Return the handle or the error for each job of `message_of`, in the same order."""
    if response.all_inserted:
        submitted_at = moment_of(response)
        return [submission.inserted(submitted_at) for submission in submissions]
    unique = [submission for submission in submissions if submission.is_unique]
    plain = submissions[: len(submissions) - len(unique)]
    if unique and len(response.results) == len(plain):
        ignored = [submission.ignored() for submission in unique]
        return [*outcomes_of(plain, response), *ignored]
    return [
        submission.settle(result) for submission, result in zip(submissions, response.results, strict=True)
    ]


def settled(
    result: pb.SubmitResult, asked_id: str, topic: str, handles: type[JobHandle[Any]], *, id_is_ours: bool
) -> Outcome:
    """Return the handle or the error of the answer. `asked_id` is the id that was sent."""
    if result.HasField("refusal"):
        return error_for_code(result.refusal.code, result.refusal.message)
    # An id that this call made can only have been stored by this call, if by an earlier try.
    duplicate = result.duplicate and not (id_is_ours and result.job_id == asked_id)
    return handles(result.job_id, topic, duplicate, result.replaced, moment_of(result))


def moment_of(answer: pb.SubmitJobsResponse | pb.SubmitResult) -> datetime | None:
    """Return when the jobs were stored. None for a server of a version that does not report it."""
    return answer.submitted_at.ToDatetime(tzinfo=UTC) if answer.HasField("submitted_at") else None


def _refused_value(topic: object, options: Mapping[str, Any], error: Exception) -> str:
    """Return a sentence that names the value that protobuf refused."""
    if not isinstance(topic, str):
        return f"topic has to be str, but {topic!r} was given."
    for name, kind in {"max_attempts": int, **_SCALARS, "job_id": str}.items():
        value: Any = options.get(name)
        if not isinstance(value, kind | None):
            return f"{name} has to be {kind.__name__}, but {value!r} was given."
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            return f"{name}={value} is outside the range of 32 bits."
    metadata = options.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, Mapping)
        and all(isinstance(text, str) for item in metadata.items() for text in item)
    ):
        return f"metadata has to map strings to strings, but {metadata!r} was given."
    return f"The job cannot be sent: {error}."


# ---------------------------------------------------------------- sending


class Submitter:
    """Stores jobs. Concurrent callers share a batch; each has its own timeout and its own answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._columns_from = 0.0
        self._loop = asyncio.get_running_loop()
        self._waiting: set[_WaitingJob] = set()
        # One timer for all callers: one for each would cost more than the rest of the wait.
        self._next_expiry = math.inf
        self._expiry: asyncio.TimerHandle | None = None
        self._line: Line[pb.SubmitJobsResponse] = Line(
            connection, connection.stub.SubmitJobs, connection.stub.StreamSubmits
        )
        self._coalescer: Coalescer[_WaitingJob] = Coalescer(
            self._send,
            size_of=attrgetter("submission.size"),
            most_items=tuning.ENQUEUE_BATCH_JOBS,
            most_bytes=tuning.ENQUEUE_BATCH_BYTES,
            in_flight=tuning.ENQUEUES_IN_FLIGHT,
        )

    async def submit(self, submission: Submission, timeout_seconds: float) -> JobHandle:
        """Store one job. Raises the server's error, or Unavailable at the timeout."""
        deadline = self._loop.time() + timeout_seconds
        waiting = _WaitingJob(submission, self._loop.create_future(), deadline)
        self._waiting.add(waiting)
        if deadline < self._next_expiry:
            self._expire_at(deadline)
        self._coalescer.add(waiting)
        try:
            return await waiting.answer
        finally:
            self._waiting.discard(waiting)

    async def submit_all(self, submissions: Sequence[Submission], timeout_seconds: float) -> list[Outcome]:
        """Store the jobs, in batches. Returns a handle or the error for each.

        Unique jobs have to come last. A batch without an answer raises a PulseError; later batches are
        not sent. `timeout_seconds` bounds each batch.
        """
        outcomes: list[Outcome] = []
        sizes = (submission.size for submission in submissions)
        for begin, end in batch_bounds(sizes, tuning.ENQUEUE_BATCH_JOBS, tuning.ENQUEUE_BATCH_BYTES):
            batch = submissions[begin:end]
            outcomes += outcomes_of(batch, await self.submit_together(message_of(batch), timeout_seconds))
        return outcomes

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def submit_together(
        self, message: pb.StreamSubmitsRequest, timeout_seconds: float
    ) -> pb.SubmitJobsResponse:
        """Store the jobs of the message with one call, retried until the timeout. Raises a PulseError."""
        response = await self._connection.keep_trying(
            lambda seconds: self._line.call(message, seconds), timeout_seconds, also=is_refused_for_now
        )
        self._connection.unserved.warn(response.no_worker)
        return response

    def may_send_columns(self) -> bool:
        """True unless a server ignored them a short time ago."""
        return self._loop.time() >= self._columns_from

    def columns_were_ignored(self) -> None:
        """Do without columns for a while: this server is of a version without them, and stored nothing."""
        self._columns_from = self._loop.time() + tuning.COLUMNS_REST_SECONDS

    async def close(self) -> None:
        """Fail the jobs that were not sent."""
        for waiting in await self._coalescer.close():
            waiting.settle(ClientClosed("The client was closed before the job was sent."))
        if self._expiry is not None:
            self._expiry.cancel()
        await self._line.close()

    async def _send(self, batch: list[_WaitingJob]) -> None:
        try:
            async for _ in JitteredBackoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS):
                # Callers that were canceled or timed out no longer wait.
                batch = [waiting for waiting in batch if not waiting.answer.done()]
                if not batch or (error := await self._try(batch)) is None:
                    return
                for waiting in batch:
                    waiting.last_error = error
        except BaseException as error:
            # Otherwise these callers would wait until their timeout.
            for waiting in batch:
                waiting.settle(ClientClosed("The client was closed while the job was being sent."))
            if not isinstance(error, asyncio.CancelledError | ClientClosed):
                raise

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def _try(self, batch: list[_WaitingJob]) -> PulseError | None:
        """Send once. Returns an error that may be retried; otherwise every caller has its answer."""
        batch = sorted(batch, key=attrgetter("submission.is_unique"))
        submissions = [waiting.submission for waiting in batch]
        try:
            response = await self._line.call(message_of(submissions))
        except grpc.aio.AioRpcError as failed:
            error = self._connection.translate(failed)
            if is_retryable(failed) or is_refused_for_now(failed):
                return error
            for waiting in batch:
                waiting.settle(type(error)(error.message))
            return None
        for waiting, outcome in zip(batch, outcomes_of(submissions, response), strict=True):
            waiting.settle(outcome)
        self._connection.unserved.warn(response.no_worker)
        return None

    def _expire_at(self, moment: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._next_expiry = moment
        self._expiry = self._loop.call_at(moment, self._expire)

    def _expire(self) -> None:
        """Fail the callers whose timeouts have passed. The timer is set to the next one."""
        now = max(self._loop.time(), self._next_expiry)  # the loop may be early by its clock's resolution
        self._expiry, self._next_expiry = None, math.inf
        for waiting in self._waiting:
            if waiting.deadline <= now:
                waiting.settle(waiting.last_error or self._connection.out_of_time())
        if later := [waiting.deadline for waiting in self._waiting if waiting.deadline > now]:
            self._expire_at(min(later))


class _WaitingJob:
    """A caller that waits for its job to be stored."""

    __slots__ = ("answer", "deadline", "last_error", "submission")

    def __init__(self, submission: Submission, answer: asyncio.Future[JobHandle], deadline: float) -> None:
        self.submission = submission
        self.answer = answer
        self.deadline = deadline
        self.last_error: PulseError | None = None

    def settle(self, outcome: Outcome) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, PulseError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)
