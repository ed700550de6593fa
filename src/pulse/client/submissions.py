"""The request that stores a job, and the meaning of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pulse import tuning
from pulse.client.options import ItemOptions
from pulse.errors import InvalidArgument, PulseError, Unavailable, error_for_code
from pulse.handlers.options import check_attempts
from pulse.ids import uuid7
from pulse.messages import check_duration, check_payload, check_timedelta
from pulse.models.job_handle import JobHandle
from pulse.models.unique import Unique
from pulse.v1 import pulse_pb2 as pb

_FIELDS = pb.SubmitJobRequest.DESCRIPTOR.fields_by_name
_RENAMED = {"key": "idempotency_key"}
# The options that are set in the request as they are, with their types. The others have lines of their own.
_SCALARS: Mapping[str, type] = {
    option: str if field.type == field.TYPE_STRING else int
    for option in ItemOptions.__annotations__
    if option not in ("job_id", "max_attempts")
    and (field := _FIELDS[_RENAMED.get(option, option)]).message_type is None
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
