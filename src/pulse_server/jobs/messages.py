"""Jobs and their progress, between messages and the domain.

Requests are checked here: InvalidArgument names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.bounds import WITHOUT_GROUP
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import new_id, parse_id, parse_new_id
from pulse_server.doors.boundary import duration, moment, timestamp
from pulse_server.jobs.new_jobs import NewJob, OnConflict, Scope, check_unique
from pulse_server.jobs.rules import (
    WAITING,
    Attempt,
    Claim,
    Job,
    JobFilter,
    JobStatus,
    Progress,
    ProgressReport,
    clean_report,
)


def reports(messages: Iterable[pb.ProgressReport], claims: Sequence[Claim]) -> dict[Claim, ProgressReport]:
    """The reports by the claims that they name. One that names none is left out."""
    return {
        claims[message.index]: report(message) for message in messages if 0 <= message.index < len(claims)
    }


def report(message: pb.ProgressReport) -> ProgressReport:
    return clean_report(
        message.fraction if message.HasField("fraction") else None,
        message.text,
        message.cursor if message.HasField("cursor") else None,
        message.number,
    )


def view(progress: Progress | None) -> pb.Progress | None:
    if progress is None:
        return None
    return pb.Progress(
        fraction=progress.fraction,
        text=progress.text,
        cursor=progress.cursor.encode(),
        attempt=progress.attempt,
        reported_at=timestamp(progress.reported_at),
        since=timestamp(progress.since),
        since_fraction=progress.since_fraction,
    )


class AttemptsOf(Protocol):
    """The attempts of a job without its own. Only an operator's number wins over a producer's default."""

    def __call__(self, topic: str, default: int | None = None) -> int: ...


def new_job(request: pb.SubmitJobRequest, max_attempts_of: AttemptsOf) -> NewJob:
    """Return the requested job. Raises InvalidArgument, which names the field.

    A job without a number of attempts gets the number of its topic.
    """
    job_id, key, metadata = request.job_id, request.idempotency_key, request.metadata
    start = request.WhichOneof("start")
    # By position, because this runs for every submitted job: keywords take twice as long.
    job = NewJob(
        parse_new_id(job_id) if job_id else new_id(),
        bounds.check_topic(request.topic),
        bounds.check_payload(request.payload),
        request.priority,
        _attempts(request, max_attempts_of)
        if request.HasField("max_attempts")
        else max_attempts_of(request.topic),
        bounds.check_key(key) if key else None,
        read_metadata(metadata) if metadata else None,
        bounds.check_run_at(moment(request.run_at, "run_at")) if start == "run_at" else None,
        # A delay of zero is no delay: the job is ready at once.
        (bounds.check_delay(duration(request.delay, "delay")) or None) if start == "delay" else None,
        None,
        bounds.check_positive(duration(request.start_within, "start_within"), "start_within")
        if request.HasField("start_within")
        else None,
        bounds.check_lane(lane) if (lane := request.lane) else None,
    )
    return _with_unique_key(job, request.unique) if request.HasField("unique") else job


def read_metadata(entries: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the metadata of a request. Counted first: a copy of too many entries would take long."""
    bounds.check_count("metadata", len(entries), bounds.MAX_METADATA_ENTRIES)
    return bounds.check_metadata(dict(entries))


def _attempts(request: pb.SubmitJobRequest, max_attempts_of: AttemptsOf) -> int:
    given = bounds.check_max_attempts(request.max_attempts)
    return max_attempts_of(request.topic, given) if request.max_attempts_is_default else given


def _with_unique_key(job: NewJob, given: pb.Unique) -> NewJob:
    unique = check_unique(
        given.key,
        given.scope,
        given.on_conflict,
        duration(given.period, "unique.period") if given.HasField("period") else None,
        duration(given.longest, "unique.longest") if given.HasField("longest") else None,
        starts_at_once=job.starts_at_once,
    )
    is_debounce = unique.on_conflict is OnConflict.DEBOUNCE
    return job._replace(unique=unique, delay=unique.period if is_debounce else job.delay)


def job_filter(request: pb.ListJobsRequest | pb.JobFilter) -> JobFilter:
    topics = wanted_topics(request)
    statuses = wanted_statuses(request)
    error_group = bounds.check_error_group(request.error_group)
    if error_group is not None:
        statuses = statuses or frozenset({JobStatus.DEAD_LETTERED})
        if statuses != {JobStatus.DEAD_LETTERED}:
            raise InvalidArgument(
                "error_group",
                f"selects dead letters, but the status is {' or '.join(sorted(statuses))}: leave one of "
                "them out.",
            )
    return JobFilter(
        topics=topics,
        statuses=statuses,
        submitted_since=_optional_moment(request, "submitted_since"),
        submitted_before=_optional_moment(request, "submitted_before"),
        schedule_id=parse_id(request.schedule_id, "schedule_id") if request.schedule_id else None,
        error_contains=bounds.check_search(request.error_contains),
        metadata=read_metadata(request.metadata),
        error_group=error_group,
        lane=_lane(request.lane, topics),
    )


_Filter = pb.ListJobsRequest | pb.JobFilter | pb.ExportJobsRequest


def wanted_topics(request: _Filter) -> frozenset[str] | None:
    """Return the topics that a filter names, alone or in a list. None: all."""
    bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
    given = {request.topic, *request.topics} - {""}
    return frozenset(map(bounds.check_topic, given)) or None


def wanted_statuses(request: _Filter) -> frozenset[JobStatus] | None:
    """Return the statuses that a filter names, alone or in a list. None: all."""
    given = {request.status, *request.statuses} - {""}
    for status in given - JobStatus.__members__.keys():
        raise InvalidArgument(
            "status", f"{status[:40]!r} is not a status; the statuses are {', '.join(JobStatus)}."
        )
    return frozenset(map(JobStatus, given)) or None


def _lane(lane: str, topics: frozenset[str] | None) -> str | None:
    if lane and len(topics or ()) != 1:
        raise InvalidArgument("lane", "belongs to a topic: give one topic as well.")
    return bounds.check_lane(lane)


def _optional_moment(request: pb.ListJobsRequest | pb.JobFilter, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # both messages have it
        return None
    return bounds.check_run_at(moment(getattr(request, field), field), field)


def attempts_granted(request: pb.RetryJobRequest | pb.RetryJobsRequest | pb.RetryWorkflowRequest) -> int:
    """Return the number of attempts that a retry adds."""
    if not request.HasField("attempts"):
        return bounds.DEFAULT_RETRY_ATTEMPTS
    return bounds.check_max_attempts(request.attempts, "attempts")


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
        next_run_at=timestamp(_next_run_at(job)),
        submitted_at=timestamp(job.submitted_at),
        started_at=timestamp(job.started_at),
        finished_at=timestamp(job.finished_at),
        history=[_attempt_view(attempt) for attempt in job.history],
        schedule_id=job.schedule_id or "",
        error_group=(job.error_group or WITHOUT_GROUP) if job.status is JobStatus.DEAD_LETTERED else "",
        snoozes=job.snoozes,
        crashes=job.crashes,
        start_by=timestamp(job.start_by),
        unique_key=job.unique_key or "",
        unique_scope=job.unique_scope if job.unique_scope and _holds_its_key(job) else "",
        lane=job.lane or "",
        result=job.result,
        progress=view(job.progress),
        waiting=pb.Waiting(signal=job.waits_for or "") if _waits(job) else None,
        steps=job.steps,
        suspensions=job.suspensions,
        workflow_id=job.workflow_id or "",
        waits_for_jobs=job.held and job.status in WAITING,
    )


def _waits(job: Job) -> bool:
    """Whether its handler sleeps, or waits for a signal that has not come."""
    return job.waits_for is not None and job.status is JobStatus.RETRYING and not job.ready


def _next_run_at(job: Job) -> datetime | None:
    if job.status not in WAITING:
        return None
    # A job that waits for a signal without a timeout has no next run.
    return job.next_run_at if job.next_run_at <= bounds.LAST_MOMENT else None


def _holds_its_key(job: Job) -> bool:
    """Whether no other job may have its unique key.

    One that has started keeps the scope `waiting` until another comes.
    """
    if job.unique_scope == Scope.WAITING:
        return job.status is JobStatus.PENDING
    return job.finished_at is None


def _attempt_view(attempt: Attempt) -> pb.Attempt:
    return pb.Attempt(
        attempt=attempt.attempt,
        worker_id=attempt.worker_id,
        started_at=timestamp(attempt.started_at),
        ended_at=timestamp(attempt.ended_at),
        outcome=attempt.outcome.value,
        error=attempt.error,
    )


def claims(worker_id: str) -> Callable[[pb.Claim], Claim]:
    """Return a reader of the claims of one worker. Only the original contract may leave out the attempt."""
    worker_id = bounds.check_worker_id(worker_id)

    def read(claim: pb.Claim) -> Claim:
        if claim.attempt < 1:
            raise InvalidArgument("attempt", f"is {claim.attempt}: send the attempt of the assignment.")
        return Claim(parse_id(claim.job_id), worker_id, claim.attempt, _optional_run(claim.run))

    return read


def _optional_run(run: int) -> int | None:
    if run < 0:
        raise InvalidArgument("run", f"is {run}: send the run of the assignment.")
    return run or None


def wire_claim(claim: Claim) -> pb.Claim:
    return pb.Claim(job_id=claim.job_id, attempt=claim.attempt or 0, run=claim.run or 0)
