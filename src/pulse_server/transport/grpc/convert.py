"""Between the wire's messages and the domain's nouns. What comes in is checked here, at the door."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.error_groups import WITHOUT_GROUP
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.ids import new_id, parse_id, parse_new_id
from pulse_server.domain.jobs import Attempt, Claim, ClaimedJob, Job, JobFilter, NewJob, Report
from pulse_server.domain.status import WAITING, JobStatus


def new_job(request: pb.SubmitJobRequest) -> NewJob:
    """The job that is asked for, or InvalidArgument naming the field."""
    job_id, key, metadata = request.job_id, request.idempotency_key, request.metadata
    start = request.WhichOneof("start")
    # By position, since this is called for every job that comes in: by name it would take twice as long.
    return NewJob(
        parse_new_id(job_id) if job_id else new_id(),
        limits.check_topic(request.topic),
        limits.check_payload(request.payload),
        request.priority,
        limits.check_max_attempts(request.max_attempts)
        if request.HasField("max_attempts")
        else limits.DEFAULT_MAX_ATTEMPTS,
        limits.check_key(key) if key else None,
        limits.check_metadata(dict(metadata)) if metadata else None,
        limits.check_run_at(moment(request.run_at, "run_at")) if start == "run_at" else None,
        # No delay is the same as none given: the job is ready at once.
        (limits.check_delay(duration(request.delay, "delay")) or None) if start == "delay" else None,
    )


def report(request: pb.ReportResultRequest) -> Report:
    claim = Claim(
        parse_id(request.job_id), _optional_worker(request.worker_id), _optional_attempt(request.attempt)
    )
    return Report(claim, True) if request.success else _failure(claim, request)


def reports(
    request: pb.ReportResultsRequest, known: Container[str], refused: Callable[[InvalidArgument], pb.Refusal]
) -> Callable[[pb.Result], Report | pb.Refusal]:
    """Reads the results of one request, of one worker. Ids that are known are not checked again."""
    worker_id = limits.check_worker_id(request.worker_id)

    def read(result: pb.Result) -> Report | pb.Refusal:
        try:
            job_id, attempt = result.job_id, result.attempt
            if job_id not in known:
                job_id = parse_id(job_id)
            claim = Claim(job_id, worker_id, attempt if attempt > 0 else _optional_attempt(attempt))
            return Report(claim, True) if result.success else _failure(claim, result)
        except InvalidArgument as error:
            return refused(error)  # not the error itself: its traceback has the frame that keeps it

    return read


def _failure(claim: Claim, result: pb.ReportResultRequest | pb.Result) -> Report:
    return Report(
        claim,
        False,
        limits.clean_error(result.error),
        limits.check_delay(duration(result.retry_after, "retry_after"), "retry_after")
        if result.HasField("retry_after")
        else None,
        result.discard,
    )


def heartbeat(request: pb.HeartbeatRequest) -> Claim:
    return Claim(
        parse_id(request.job_id),
        limits.check_worker_id(request.worker_id),
        _optional_attempt(request.attempt),
    )


def claims(worker_id: str) -> Callable[[pb.Claim], Claim]:
    """Reads the claims of one worker. Each needs its attempt: only the original contract may leave it out."""
    worker_id = limits.check_worker_id(worker_id)

    def read(claim: pb.Claim) -> Claim:
        if claim.attempt < 1:
            raise InvalidArgument("attempt", f"is {claim.attempt}: send the attempt of the assignment.")
        return Claim(parse_id(claim.job_id), worker_id, claim.attempt)

    return read


def topics(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(limits.check_topic(name, "topics") for name in names)
    if not found:
        raise InvalidArgument("topics", "is empty: name the topics that this worker handles.")
    limits.check_count("topics", len(found), limits.MAX_TOPICS_PER_WORKER)
    return found


def job_filter(request: pb.ListJobsRequest | pb.JobFilter) -> JobFilter:
    if request.status and request.status not in JobStatus.__members__:
        raise InvalidArgument(
            "status", f"{request.status[:40]!r} is not a status; the statuses are {', '.join(JobStatus)}."
        )
    error_group = limits.check_error_group(request.error_group)
    status = request.status
    if error_group is not None:
        status = status or JobStatus.DEAD_LETTERED
        if status != JobStatus.DEAD_LETTERED:
            raise InvalidArgument(
                "error_group",
                f"is of dead letters, but the status asked for is {status}: leave one of them out.",
            )
    return JobFilter(
        topic=limits.check_topic(request.topic) if request.topic else None,
        statuses=frozenset({JobStatus(status)}) if status else None,
        submitted_since=_optional_moment(request, "submitted_since"),
        submitted_before=_optional_moment(request, "submitted_before"),
        schedule_id=parse_id(request.schedule_id, "schedule_id") if request.schedule_id else None,
        error_contains=limits.check_search(request.error_contains),
        metadata=limits.check_metadata(dict(request.metadata)),
        error_group=error_group,
    )


def attempts_granted(request: pb.RetryJobRequest | pb.RetryJobsRequest) -> int:
    """How many further attempts a redrive grants."""
    if not request.HasField("attempts"):
        return limits.DEFAULT_MAX_ATTEMPTS
    return limits.check_max_attempts(request.attempts, "attempts")


def assignment(job: ClaimedJob) -> pb.JobAssignment:
    return pb.JobAssignment(**_assignment_fields(job))


def add_assignments(message: pb.StreamJobsResponse, jobs: Iterable[ClaimedJob]) -> None:
    add = message.assignments.add  # made in place: a list of messages would be copied into the field
    for job in jobs:
        add(**_assignment_fields(job))


def _assignment_fields(job: ClaimedJob) -> dict[str, Any]:
    job_id, topic, payload, attempt, priority, max_attempts, metadata, key, _, confirm, _ = job
    fields: dict[str, Any] = {
        "job_id": job_id,
        "topic": topic,
        "payload": payload,
        "attempt": attempt,
        "max_attempts": max_attempts,
    }
    # Rare ones: each field that is set costs its while, even where it is set to nothing.
    if priority:
        fields["priority"] = priority
    if metadata:
        fields["metadata"] = metadata
    if key:
        fields["idempotency_key"] = key
    if confirm:
        fields["confirm"] = True
    return fields


def wire_claim(claim: Claim) -> pb.Claim:
    return pb.Claim(job_id=claim.job_id, attempt=claim.attempt or 0)


def job_view(job: Job) -> pb.JobView:
    return pb.JobView(
        job_id=job.id,
        status=job.status.value,
        topic=job.topic,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        last_error=job.last_error or "",
        payload=job.payload,
        metadata=dict(job.metadata),
        idempotency_key=job.idempotency_key or "",
        worker_id=job.locked_by or job.finished_by or "",
        lease_until=timestamp(job.lease_until),
        next_run_at=timestamp(job.next_run_at if job.status in WAITING else None),
        submitted_at=timestamp(job.submitted_at),
        started_at=timestamp(job.started_at),
        finished_at=timestamp(job.finished_at),
        history=[_attempt_view(attempt) for attempt in job.history],
        schedule_id=job.schedule_id or "",
        error_group=(job.error_group or WITHOUT_GROUP) if job.status is JobStatus.DEAD_LETTERED else "",
    )


def _attempt_view(attempt: Attempt) -> pb.Attempt:
    return pb.Attempt(
        attempt=attempt.attempt,
        worker_id=attempt.worker_id,
        started_at=timestamp(attempt.started_at),
        ended_at=timestamp(attempt.ended_at),
        outcome=attempt.outcome.value,
        error=attempt.error,
    )


def moment(timestamp: Timestamp, field: str) -> datetime:
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a moment that a calendar knows.") from None


def _optional_moment(request: pb.ListJobsRequest | pb.JobFilter, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # both messages have it
        return None
    return limits.check_run_at(moment(getattr(request, field), field), field)


def duration(span: Duration, field: str) -> timedelta:
    try:
        return span.ToTimedelta()
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a valid duration.") from None


def wire_duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def timestamp(when: datetime | None) -> Timestamp | None:
    return None if when is None else exact_timestamp(when)


def exact_timestamp(when: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(when)
    return message


def _optional_worker(worker_id: str) -> str | None:
    return limits.check_worker_id(worker_id) if worker_id else None


def _optional_attempt(attempt: int) -> int | None:
    if attempt < 0:
        raise InvalidArgument("attempt", f"is {attempt}: attempts are counted from 1.")
    return attempt or None
