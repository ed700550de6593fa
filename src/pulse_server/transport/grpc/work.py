"""The RPCs of work: stream jobs to a worker, and take its heartbeats and releases."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from typing import Any

import grpc

from pulse import failpoints
from pulse.v1 import pulse_pb2 as pb
from pulse_server import tuning
from pulse_server.clock import lease_clock
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.sessions import Session
from pulse_server.domain import bounds
from pulse_server.domain.errors import JobLocked, Unavailable
from pulse_server.domain.leases import NO_PROGRESS
from pulse_server.domain.secret import completion_key
from pulse_server.domain.steps import StepBounds
from pulse_server.service.dispatch import Gate
from pulse_server.service.leases import Leases
from pulse_server.service.reports import Reports
from pulse_server.service.topic_settings import TopicRules
from pulse_server.transport.grpc import convert_progress, convert_times, convert_work
from pulse_server.transport.grpc.deliveries import DeliveryEncoder, original_messages
from pulse_server.transport.grpc.reports import ReportRpcs
from pulse_server.transport.grpc.worker_ids import binds_worker_id
from pulse_server.turns import TURN_ENTRIES, each_in_turns

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
            lease_ttl=convert_times.wire_duration(lease_ttl),
            heartbeat_interval=convert_times.wire_duration(heartbeat),
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
        held = await each_in_turns(convert_work.claims(request.worker_id), request.held, TURN_ENTRIES)
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
        claims = await each_in_turns(convert_work.claims(request.worker_id), request.claims, TURN_ENTRIES)
        progress = convert_progress.reports(request.progress, claims) if request.progress else NO_PROGRESS
        start_within = None
        if request.HasField("start_within"):
            start_within = convert_times.duration(request.start_within, "start_within")
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
            stop=[convert_work.wire_claim(claim) for claim in lost],
            unknown=[convert_work.wire_claim(claim) for claim in unknown],
            paused=self._gate.state.paused(request.starting),
            clock_seconds=lease_clock(),
            clock_id=self._clock_id,
        )

    @binds_worker_id
    async def release(self, request: pb.ReleaseRequest, _context: Any) -> pb.ReleaseResponse:
        bounds.check_count("claims", len(request.claims), bounds.MAX_CLAIMS_PER_HEARTBEAT)
        bounds.check_count("held", len(request.held), bounds.MAX_CAPACITY)
        read = convert_work.claims(request.worker_id)
        claims = await each_in_turns(read, request.claims, TURN_ENTRIES)
        held = await each_in_turns(read, request.held, TURN_ENTRIES)
        if request.capacity:
            self._roster.resize(request.worker_id, bounds.check_capacity(request.capacity))
        if request.is_blocked:
            self._roster.settle(claims)
        else:
            self._roster.answered(request.worker_id, claims)
        progress = convert_progress.reports(request.progress, claims) if request.progress else NO_PROGRESS
        released, locked = await self._claims.release(claims, progress)
        if request.is_blocked:
            unread = await self._claims.release_unread(self._roster.not_among(held, request.worker_id))
            self._roster.settle(unread)
        return pb.ReleaseResponse(
            released=released, locked=[convert_work.wire_claim(claim) for claim in locked]
        )


def _completion_key(worker_id: str, secret: bytes) -> pb.StreamJobsResponse:
    """A message with the worker's key for pulse.complete_job. An empty one if there is no secret."""
    if not secret:
        return pb.StreamJobsResponse()
    key = completion_key(secret, worker_id)
    return pb.StreamJobsResponse(completion_key=pb.CompletionKey(worker=worker_id, key=key))
