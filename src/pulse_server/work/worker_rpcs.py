"""The RPCs of work: stream jobs to a worker, and take its reports, heartbeats and releases.

Requests are checked here. Deliveries are encoded like protobuf, in less than half the time. A drain sends a
thousand jobs in a message. Most jobs have only an id, a topic, a payload, an attempt, a run and a limit of
attempts: their bytes are joined here. protobuf encodes the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import timedelta
from struct import Struct
from typing import Any, NamedTuple

import grpc

from pulse import failpoints
from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds, tuning
from pulse_server.base.bounds import StepBounds
from pulse_server.base.errors import InvalidArgument, JobLocked, PulseError, Unavailable
from pulse_server.base.ids import completion_key, parse_id
from pulse_server.base.loops import TURN_ENTRIES, each_in_turns, in_turns, lease_clock
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import WorkerFacts
from pulse_server.dispatch.service import Gate
from pulse_server.dispatch.workers import Delivery, Session
from pulse_server.doors import boundary
from pulse_server.doors.boundary import duration, refusal, wire_duration
from pulse_server.doors.callers import binds_worker_id, calling_user, is_own, own_worker_id
from pulse_server.jobs import messages
from pulse_server.jobs.messages import _optional_run
from pulse_server.jobs.reports import (
    NO_PROGRESS,
    FailureReport,
    Report,
    ResultReport,
    SnoozeReport,
    SuspendReport,
    claim_of,
)
from pulse_server.jobs.rules import Claim, ClaimedJob, ProgressReport
from pulse_server.steps.rpcs import step_to_continue
from pulse_server.steps.rules import check_signal_names, check_step_name
from pulse_server.topics.service import TopicRules
from pulse_server.work.attempts import Leases, Reports


def read_topics(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(bounds.check_topic(name, "topics") for name in names)
    if not found:
        raise InvalidArgument("topics", "is empty: name the topics that this worker handles.")
    bounds.check_count("topics", len(found), bounds.MAX_TOPICS_PER_WORKER)
    return found


def read_facts(reported: pb.WorkerFacts) -> WorkerFacts:
    """Return the facts. They are cut, not refused: a worker must not fail for them."""
    texts = (reported.host, reported.version, reported.last_exit)
    host, version, last_exit = (text.replace("\0", "")[: bounds.MAX_WORKER_ID_LENGTH] for text in texts)
    return WorkerFacts(host, version, max(0, reported.memory_bytes), last_exit)


def read_report(request: pb.ReportResultRequest, max_result_bytes: int) -> Report:
    claim = Claim(
        parse_id(request.job_id),
        _optional_worker(request.worker_id),
        _optional_attempt(request.attempt),
        _optional_run(request.run),
    )
    returned = request.result if request.HasField("result") else None
    return _report(claim, request, returned, max_result_bytes)


def read_result(
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


def read_heartbeat(request: pb.HeartbeatRequest) -> Claim:
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


# Keys of fields: the number of the field, and how its value is encoded.
_ASSIGNMENTS = b"\x12"  # of StreamJobsResponse: 2, with a length
_CLOCK_SECONDS_KEY = 0x31  # 6, a double
_CLOCK_SECONDS = Struct("<Bd")
_TOPIC = b"\x12"  # of JobAssignment: 2, with a length
_PAYLOAD = b"\x1a"  # 3, with a length
# The id (1, with its length of 36), topic and payload; attempt (4), max_attempts (6), run (12) as varints.
_BODY = b"\x0a\x24%b%b%b%b\x20%b\x30%b\x60%b"
_ID_LENGTH = 0x24
# Topics whose bytes are kept. More than a server usually has at a time; a few hundred kilobytes at most.
_TOPICS_KEPT = 1000


def _varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# By number. Nearly all attempts and sizes are small.
_SMALL = [_varint(number) for number in range(4096)]


class DeliveryEncoder:
    """Encodes each delivery as a StreamJobsResponse. Keeps the bytes of topics, with their time limits."""

    def __init__(self, rules: TopicRules) -> None:
        self._rules = rules
        self._time_limits: Mapping[str, timedelta] = {}
        self._topics: dict[str, bytes] = {}

    def encode(self, delivery: Delivery) -> bytes:
        assignments = self.encode_assignments(delivery.jobs)
        is_plain = delivery.recalled is None and not (delivery.stops_worker or delivery.is_last)
        if assignments and not delivery.stops and is_plain:
            return assignments + _CLOCK_SECONDS.pack(_CLOCK_SECONDS_KEY, delivery.claimed_at)
        message = pb.StreamJobsResponse(
            clock_seconds=delivery.claimed_at,
            stop=[messages.wire_claim(claim) for claim in delivery.stops],
            draining=delivery.is_last,
            recall=None if delivery.recalled is None else pb.Recall(topics=sorted(delivery.recalled)),
            stop_worker=delivery.stops_worker,
        )
        return assignments + message.SerializeToString()

    def encode_assignments(self, jobs: Iterable[ClaimedJob]) -> bytes:
        """Return the bytes of the field `assignments`, to which other fields can be appended."""
        if self._time_limits is not self._rules.time_limits:
            self._time_limits = self._rules.time_limits
            self._topics.clear()
        small, topics = _SMALL, self._topics
        parts: list[bytes] = []
        add = parts.append
        for job in jobs:
            (
                job_id,
                topic,
                payload,
                attempt,
                run,
                priority,
                max_attempts,
                metadata,
                key,
                _,
                confirm,
                _,
                _,
                _,
                lane,
                progress,
                steps,
            ) = job
            id_bytes, size = job_id.encode(), len(payload)
            if (
                not size
                or not topic
                or priority
                or metadata
                or key
                or confirm
                or lane
                or progress
                or steps is not None
                or not (0 < attempt < 4096 and 0 < max_attempts < 4096 and 0 < run < 4096)
                or len(id_bytes) != _ID_LENGTH
            ):
                body = assignment(job).SerializeToString() + self._timeout(topic)
            else:
                body = _BODY % (
                    id_bytes,
                    topics.get(topic) or self._topic(topic),
                    small[size] if size < 4096 else _varint(size),
                    payload,
                    small[attempt],
                    small[max_attempts],
                    small[run],
                )
            size = len(body)
            add(_ASSIGNMENTS)
            add(small[size] if size < 4096 else _varint(size))
            add(body)
        return b"".join(parts)

    def _topic(self, name: str) -> bytes:
        """Encode the topic, its time limit, and the key of the payload that follows them."""
        if len(self._topics) >= _TOPICS_KEPT:
            self._topics.clear()
        data = name.encode()
        encoded = self._topics[name] = _TOPIC + _varint(len(data)) + data + self._timeout(name) + _PAYLOAD
        return encoded

    def _timeout(self, topic: str) -> bytes:
        """Encode the time limit of an attempt. Fields may come in any order."""
        timeout = self._time_limits.get(topic, self._time_limits.get(""))
        if timeout is None:
            return b""
        return pb.JobAssignment(timeout=wire_duration(timeout)).SerializeToString()


def original_messages(jobs: Sequence[ClaimedJob]) -> list[pb.StreamJobsResponse]:
    """A message for each job, as workers of the original contract read them."""
    return [pb.StreamJobsResponse(assignment=assignment(job)) for job in jobs]


# ---------------------------------------------------------------- reports
# The RPCs of reports: take the results of attempts.

_NO_WORKER = "?"
_new_tuple = tuple.__new__


class ReportRpcs:
    """They need no stream of jobs, unlike the other RPCs of workers."""

    def __init__(self, roster: Roster, reports: Reports, max_result_bytes: int) -> None:
        self._roster = roster
        self._reports = reports
        self._max_result_bytes = max_result_bytes

    @binds_worker_id
    async def report_result(self, request: pb.ReportResultRequest, _context: Any) -> pb.ReportResultResponse:
        if not request.worker_id and calling_user() is not None:
            request.worker_id = await self._own_holder(parse_id(request.job_id))
        report = read_report(request, self._max_result_bytes)
        self._roster.answered(request.worker_id, [claim_of(report)])
        (error,) = await self._reports.report([report])
        if error is not None:
            raise error
        return pb.ReportResultResponse()

    @binds_worker_id
    async def report_results(
        self, request: pb.ReportResultsRequest, _context: Any
    ) -> pb.ReportResultsResponse:
        bounds.check_count("results", len(request.results), bounds.MAX_RESULTS_PER_REPORT)
        results = await read_results(request, self._roster.held_jobs, self._max_result_bytes)
        # The worker has finished them, whether or not the reports are accepted: the next jobs can be claimed
        # while these are being committed.
        if request.capacity:
            self._roster.resize(request.worker_id, bounds.check_capacity(request.capacity))
        if request.run_seconds:
            self._roster.set_pace(request.worker_id, bounds.check_run_seconds(request.run_seconds))
        self._roster.answered(request.worker_id, results.claims())
        answers = await self._reports.report(results.reports)
        if not results.unreadable and not any(answers):  # the usual case: all were accepted
            return pb.ReportResultsResponse()
        return pb.ReportResultsResponse(refused=await results.refused(answers))

    async def _own_holder(self, job_id: str) -> str:
        """Return the holder or finisher of the job, for the original contract, which has no worker id.

        A job that a worker of another user holds is refused like a lost claim.
        """
        holder = await self._reports.holder(job_id)
        return holder if holder is not None and is_own(holder) else own_worker_id(_NO_WORKER)


class Results(NamedTuple):
    """The results in a report."""

    reports: list[Report]
    """The readable results, in the order of the request."""
    unreadable: dict[int, pb.Refusal]
    """The unreadable results, by their index in the request."""

    def claims(self) -> list[Claim]:
        return [report if isinstance(report, Claim) else report.claim for report in self.reports]

    async def refused(self, answers: Sequence[PulseError | None]) -> list[pb.RefusedResult]:
        """Name the results that do not count: unreadable ones, and reports that have an error as answer."""
        indexes = range(len(self.reports) + len(self.unreadable))
        read = [index for index in indexes if index not in self.unreadable]
        errors = {index: error for index, error in zip(read, answers, strict=True) if error is not None}

        def name(index: int) -> pb.RefusedResult:
            why = self.unreadable.get(index)
            return pb.RefusedResult(index=index, refusal=why if why is not None else refusal(errors[index]))

        return await each_in_turns(name, sorted([*self.unreadable, *errors]), TURN_ENTRIES)


async def read_results(
    request: pb.ReportResultsRequest, known: Container[str], max_result_bytes: int
) -> Results:
    """Read the results. Known ids are not checked again: the server has sent them to its workers."""
    worker_id = bounds.check_worker_id(request.worker_id)
    results = Results([], {})
    add, returned = results.reports.append, dict(request.returned)
    async for some in in_turns(request.results, TURN_ENTRIES):
        for result in some:
            job_id, attempt, run = result.job_id, result.attempt, result.run
            value = returned.get(len(results.reports) + len(results.unreadable)) if returned else None
            if result.success and attempt > 0 and run > 0 and job_id in known and value is None:
                # Claim(…), without calling a Python function: the call would be a thirtieth of the
                # server's work for a job in a drain.
                add(_new_tuple(Claim, (job_id, worker_id, attempt, run)))
                continue
            try:
                add(read_result(result, worker_id, known, value, max_result_bytes))
            except InvalidArgument as error:
                index = len(results.reports) + len(results.unreadable)
                results.unreadable[index] = refusal(error)  # not the error: its traceback holds this frame
    return results


# ---------------------------------------------------------------- work

# The share of a heartbeat's time limit for the database. The rest is for answering that it is late.
BEAT_ANSWER_SHARE = 0.8
# A worker of the original contract names no capacity.
ORIGINAL_CAPACITY = 100
# A message that a worker does not take for this share of a lease ends its stream. Jobs behind it
# are leased already, and must go to another worker before the lease expires. A worker that does
# read it asks the server before it starts a job whose claim is older than a second (docs/adr/0043).
STREAM_WRITE_SHARE = 1 / 3

log = logging.getLogger(__name__)


class WorkRpcs(ReportRpcs):
    def __init__(
        self,
        hub: Hub,
        claims: Claims,
        gate: Gate,
        leases: Leases,
        reports: Reports,
        rules: TopicRules,
        *,
        lease_ttl: timedelta,
        heartbeat: timedelta,
        steps: StepBounds,
        max_result_bytes: int = tuning.MAX_RESULT_BYTES,
    ) -> None:
        super().__init__(hub.roster, reports, max_result_bytes)
        self._hub = hub
        self._claims = claims
        self._gate = gate
        self._leases = leases
        self._write_timeout = lease_ttl.total_seconds() * STREAM_WRITE_SHARE
        self._encoder = DeliveryEncoder(rules)
        self._clock_id = os.urandom(8).hex()
        self._terms = pb.StreamWelcome(
            lease_ttl=boundary.wire_duration(lease_ttl),
            heartbeat_interval=boundary.wire_duration(heartbeat),
            clock_id=self._clock_id,
            max_result_bytes=max_result_bytes,
            steps=pb.StepBounds(steps=steps.steps, bytes=steps.bytes),
        )

    @binds_worker_id
    async def stream_jobs(
        self, request: pb.StreamJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream jobs to the worker until it disconnects, the server drains, or the transport breaks."""
        capacity = bounds.check_capacity(request.capacity)
        bounds.check_count("held", len(request.held), bounds.MAX_CAPACITY)
        session = Session(
            bounds.check_worker_id(request.worker_id),
            read_topics(request.topics),
            0 if request.idle else capacity or ORIGINAL_CAPACITY,
            speaks_batches=capacity > 0,
            run_id=bounds.check_run_id(request.run_id),
            backlog=self._roster.backlog,
            concurrency=bounds.check_capacity(request.concurrency, "concurrency"),
            facts=read_facts(request.facts),
            can_stop=request.can_stop,
        )
        held = await each_in_turns(messages.claims(request.worker_id), request.held, TURN_ENTRIES)
        log.info(
            "worker_connected",
            extra={
                "worker_id": session.worker_id,
                "topics": sorted(session.topics)[: tuning.WORKER_TOPICS_SHOWN],
                "topic_count": len(session.topics),
                "capacity": session.capacity,
            },
        )
        try:
            self._hub.connect(session, held)
            # One timeout per stream, reset for each message: a new one would cost three times as much.
            async with asyncio.timeout(None) as patience:
                secret = self._gate.state.secret
                if session.speaks_batches:  # after the welcome the worker is registered in the hub
                    await self._write(context, patience, self._welcome(session.worker_id, secret))
                async for delivery in session.deliveries():
                    if session.speaks_batches:
                        message = self._encoder.encode(delivery)
                        if secret != self._gate.state.secret:
                            secret = self._gate.state.secret
                            message += _completion_key(session.worker_id, secret).SerializeToString()
                        await self._write(context, patience, message)
                    else:
                        for original in original_messages(delivery.jobs):
                            await self._write(context, patience, original)
        except TimeoutError:
            log.warning("worker_does_not_read", extra={"worker_id": session.worker_id})
            raise Unavailable(
                "The stream was ended, because the worker did not read it. Unread jobs went to other workers."
            ) from None
        finally:
            self._hub.disconnect(session)
            log.info("worker_disconnected", extra={"worker_id": session.worker_id, "held": len(session.held)})

    @failpoints.before("stream.writing", Unavailable)
    @failpoints.after("stream.written", Unavailable)
    async def _write(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        patience: asyncio.Timeout,
        message: pb.StreamJobsResponse | bytes,
    ) -> None:
        """Write the message. `patience` expires if the worker does not read it in time."""
        patience.reschedule(asyncio.get_running_loop().time() + self._write_timeout)
        await context.write(message)
        patience.reschedule(None)

    def _welcome(self, worker_id: str, secret: bytes) -> pb.StreamJobsResponse:
        message = _completion_key(worker_id, secret)
        message.MergeFrom(pb.StreamJobsResponse(welcome=self._terms, clock_seconds=lease_clock()))
        return message

    @binds_worker_id
    async def heartbeat(self, request: pb.HeartbeatRequest, _context: Any) -> pb.HeartbeatResponse:
        lost, unknown = await self._leases.extend([read_heartbeat(request)])
        if unknown:
            raise JobLocked(request.job_id)
        return pb.HeartbeatResponse(should_stop=bool(lost))

    @binds_worker_id
    async def heartbeats(
        self, request: pb.HeartbeatsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.HeartbeatsResponse:
        bounds.check_count("claims", len(request.claims), bounds.MAX_CLAIMS_PER_HEARTBEAT)
        claims = await each_in_turns(messages.claims(request.worker_id), request.claims, TURN_ENTRIES)
        progress = messages.reports(request.progress, claims) if request.progress else NO_PROGRESS
        start_within = None
        if request.HasField("start_within"):
            start_within = boundary.duration(request.start_within, "start_within")
        remaining = context.time_remaining()
        timeout_seconds = None if remaining is None else remaining * BEAT_ANSWER_SHARE
        try:
            async with asyncio.timeout(timeout_seconds):
                lost, unknown = await self._leases.extend(claims, progress, start_within)
        except TimeoutError:
            # The heartbeat has not failed: the caller sets the timeout, and the statement continues. But the
            # worker needs an answer: if a server does not answer it gives up its jobs when their leases end.
            raise Unavailable("The database has not answered the heartbeat yet. Try again.") from None
        self._roster.settle(lost)
        if request.memory_bytes > 0:
            self._roster.set_memory(request.worker_id, request.memory_bytes)
        return pb.HeartbeatsResponse(
            stop=[messages.wire_claim(claim) for claim in lost],
            unknown=[messages.wire_claim(claim) for claim in unknown],
            paused=self._gate.state.paused(request.starting),
            clock_seconds=lease_clock(),
            clock_id=self._clock_id,
        )

    @binds_worker_id
    async def release(self, request: pb.ReleaseRequest, _context: Any) -> pb.ReleaseResponse:
        bounds.check_count("claims", len(request.claims), bounds.MAX_CLAIMS_PER_HEARTBEAT)
        bounds.check_count("held", len(request.held), bounds.MAX_CAPACITY)
        read = messages.claims(request.worker_id)
        claims = await each_in_turns(read, request.claims, TURN_ENTRIES)
        held = await each_in_turns(read, request.held, TURN_ENTRIES)
        if request.capacity:
            self._roster.resize(request.worker_id, bounds.check_capacity(request.capacity))
        if request.is_blocked:
            self._roster.settle(claims)
        else:
            self._roster.answered(request.worker_id, claims)
        progress = messages.reports(request.progress, claims) if request.progress else NO_PROGRESS
        released, locked = await self._claims.release(claims, progress)
        if request.is_blocked:
            unread = await self._claims.release_unread(self._roster.not_among(held, request.worker_id))
            self._roster.settle(unread)
        return pb.ReleaseResponse(released=released, locked=[messages.wire_claim(claim) for claim in locked])


def _completion_key(worker_id: str, secret: bytes) -> pb.StreamJobsResponse:
    """A message with the worker's key for pulse.complete_job. An empty one if there is no secret."""
    if not secret:
        return pb.StreamJobsResponse()
    key = completion_key(secret, worker_id)
    return pb.StreamJobsResponse(completion_key=pb.CompletionKey(worker=worker_id, key=key))
