"""Claims, reports and assignments of workers, between messages and the domain. Requests are checked here."""

from __future__ import annotations

from collections.abc import Container, Iterable

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import parse_id
from pulse_server.dispatch.rules import WorkerFacts
from pulse_server.doors.boundary import duration
from pulse_server.jobs import messages
from pulse_server.jobs.messages import _optional_run
from pulse_server.jobs.reports import FailureReport, Report, ResultReport, SnoozeReport, SuspendReport
from pulse_server.jobs.rules import Claim, ClaimedJob, ProgressReport
from pulse_server.steps.rpcs import step_to_continue
from pulse_server.steps.rules import check_signal_names, check_step_name


def topics(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(bounds.check_topic(name, "topics") for name in names)
    if not found:
        raise InvalidArgument("topics", "is empty: name the topics that this worker handles.")
    bounds.check_count("topics", len(found), bounds.MAX_TOPICS_PER_WORKER)
    return found


def facts(reported: pb.WorkerFacts) -> WorkerFacts:
    """Return the facts. They are cut, not refused: a worker must not fail for them."""
    texts = (reported.host, reported.version, reported.last_exit)
    host, version, last_exit = (text.replace("\0", "")[: bounds.MAX_WORKER_ID_LENGTH] for text in texts)
    return WorkerFacts(host, version, max(0, reported.memory_bytes), last_exit)


def report(request: pb.ReportResultRequest, max_result_bytes: int) -> Report:
    claim = Claim(
        parse_id(request.job_id),
        _optional_worker(request.worker_id),
        _optional_attempt(request.attempt),
        _optional_run(request.run),
    )
    returned = request.result if request.HasField("result") else None
    return _report(claim, request, returned, max_result_bytes)


def result(
    message: pb.Result, worker_id: str, known: Container[str], returned: bytes | None, max_result_bytes: int
) -> Report:
    """Read a result of that worker. Known ids are not checked again."""
    job_id = message.job_id if message.job_id in known else parse_id(message.job_id)
    claim = Claim(job_id, worker_id, _optional_attempt(message.attempt), _optional_run(message.run))
    if message.HasField("suspension") and not message.success:
        return _suspension(claim, message.suspension, _progress(message))
    return _report(claim, message, returned, max_result_bytes)


def _report(
    claim: Claim, result: pb.ReportResultRequest | pb.Result, returned: bytes | None, max_result_bytes: int
) -> Report:
    if not result.success:
        return _unsuccessful(claim, result)
    if returned is None:
        return claim
    size = len(returned)
    if size > max_result_bytes:
        # Not refused: a report that is refused is given up, and the job would run again once its lease ends.
        return FailureReport(claim, bounds.result_is_too_large(size, max_result_bytes), discard=True)
    return ResultReport(claim, returned)


def _suspension(claim: Claim, message: pb.Suspension, progress: ProgressReport | None) -> SuspendReport:
    if claim.attempt is None:
        raise InvalidArgument("attempt", "is not given: send the attempt of the assignment.")
    delay = duration(message.delay, "suspension.delay") if message.HasField("delay") else None
    if delay is None and not message.signal:
        raise InvalidArgument("suspension", "has neither a signal nor a delay: the job would not run again.")
    return SuspendReport(
        claim,
        check_step_name(message.step, "suspension.step"),
        check_signal_names(message.signal, "suspension.signal") if message.signal else "",
        None if delay is None else bounds.check_delay(delay, "suspension.delay"),
        progress,
    )


def _unsuccessful(claim: Claim, result: pb.ReportResultRequest | pb.Result) -> FailureReport | SnoozeReport:
    if not result.HasField("snooze"):
        return _failure(claim, result)
    delay = bounds.check_delay(duration(result.snooze, "snooze"), "snooze")
    return SnoozeReport(claim, delay, bounds.clean_error(result.error), _progress(result))


def _failure(claim: Claim, result: pb.ReportResultRequest | pb.Result) -> FailureReport:
    return FailureReport(
        claim,
        bounds.clean_error(result.error),
        bounds.check_delay(duration(result.retry_after, "retry_after"), "retry_after")
        if result.HasField("retry_after")
        else None,
        result.discard,
        "",
        result.timed_out,
        result.retry_after_is_policy,
        _progress(result),
        result.in_transaction,
    )


def _progress(result: pb.ReportResultRequest | pb.Result) -> ProgressReport | None:
    if not isinstance(result, pb.Result) or not result.HasField("progress"):
        return None
    return messages.report(result.progress)


def heartbeat(request: pb.HeartbeatRequest) -> Claim:
    return Claim(
        parse_id(request.job_id),
        bounds.check_worker_id(request.worker_id),
        _optional_attempt(request.attempt),
        _optional_run(request.run),
    )


def _optional_worker(worker_id: str) -> str | None:
    return bounds.check_worker_id(worker_id) if worker_id else None


def _optional_attempt(attempt: int) -> int | None:
    if attempt < 0:
        raise InvalidArgument("attempt", f"is {attempt}: attempts are counted from 1.")
    return attempt or None


def assignment(job: ClaimedJob) -> pb.JobAssignment:
    message = pb.JobAssignment(
        job_id=job.id,
        topic=job.topic,
        payload=job.payload,
        attempt=job.attempt,
        run=job.run,
        max_attempts=job.max_attempts,
    )
    # Rare fields: setting one takes time, even to its default.
    if job.priority:
        message.priority = job.priority
    if job.metadata:
        message.metadata.update(job.metadata)
    if job.idempotency_key:
        message.idempotency_key = job.idempotency_key
    if job.confirm:
        message.confirm = True
    if job.lane:
        message.lane = job.lane
    if (progress := messages.view(job.progress)) is not None:
        message.progress.CopyFrom(progress)
    if job.steps is not None:
        message.steps.SetInParent()
        message.steps.steps.extend(map(step_to_continue, job.steps))
    return message
