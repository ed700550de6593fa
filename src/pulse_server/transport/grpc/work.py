"""The RPCs of work: stream jobs to a worker, and take its heartbeats and releases."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Container, Sequence
from datetime import timedelta
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
from pulse_server.dispatch.service import Gate
from pulse_server.dispatch.workers import Session
from pulse_server.doors import boundary
from pulse_server.doors.boundary import refusal
from pulse_server.doors.callers import binds_worker_id, calling_user, is_own, own_worker_id
from pulse_server.jobs import messages
from pulse_server.jobs.reports import NO_PROGRESS, Report, claim_of
from pulse_server.jobs.rules import Claim
from pulse_server.service.leases import Leases
from pulse_server.service.reports import Reports
from pulse_server.topics.service import TopicRules
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.deliveries import DeliveryEncoder, original_messages

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
        report = convert_work.report(request, self._max_result_bytes)
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
                add(convert_work.result(result, worker_id, known, value, max_result_bytes))
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
            convert_work.topics(request.topics),
            0 if request.idle else capacity or ORIGINAL_CAPACITY,
            speaks_batches=capacity > 0,
            run_id=bounds.check_run_id(request.run_id),
            backlog=self._roster.backlog,
            concurrency=bounds.check_capacity(request.concurrency, "concurrency"),
            facts=convert_work.facts(request.facts),
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
        lost, unknown = await self._leases.extend([convert_work.heartbeat(request)])
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
