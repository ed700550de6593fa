"""Extends leases from a separate thread, so that a handler that blocks the event loop keeps its job.

A worker to which pulsed reports that the database is away keeps its jobs for a lease from that heartbeat on:
no server reaps them meanwhile. Without an answer it gives them up by its own clock.
docs/figures.md#while-the-database-is-away

A retry, a last attempt and a job whose claim may be out of date are confirmed right before their handlers
start. The confirmation is a heartbeat: from then on the attempt counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio

from pulse import failpoints, tuning
from pulse.errors import ClientClosed
from pulse.handlers.workflows import completes_in_transaction
from pulse.supervision.supervised import end_at_once, stack_of_thread
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint
from pulse.wire.servers import JitteredBackoff, is_from_pulsed, open_blocking_channel, translate
from pulse.wire.streams import Coalescer
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms, Releases, ServerClock, lease_clock, memory_bytes
from pulse.worker.outcomes import given_up
from pulse.worker.reporter import encode_progress, encode_results, in_batches, unsent_progress
from pulse.worker.runners import send_events


class Confirmer:
    """Confirms jobs in batches. Jobs that this worker still holds may start; the rest is dropped.

    A job that has left `unstarted` was stopped or released, and is skipped. A job that cannot be
    confirmed is released like any job that waits too long.
    """

    def __init__(
        self,
        connection: Connection,
        worker_id: str,
        terms: LeaseTerms,
        clock: ServerClock,
        unstarted: set[ClaimedJob],
        *,
        stop: Callable[[Iterable[ClaimedJob], str], None],
        recall: Callable[[Collection[str]], None],
        answered: Callable[[list[ClaimedJob]], None],
        later: Callable[[list[ClaimedJob]], None],
    ) -> None:
        """`later` receives jobs that the server could not confirm yet. They occupy no slot."""
        self._connection = connection
        self._worker_id = worker_id
        self._terms = terms
        self._clock = clock
        self._unstarted = unstarted
        self._stop = stop
        self._recall = recall
        self._answered = answered
        self._later = later
        # How long the answer to the last confirmation took.
        self._answer_seconds = 0.0
        self._coalescer: Coalescer[ClaimedJob] = Coalescer(
            self._send,
            size_of=lambda _: 0,
            most_items=tuning.CONFIRM_BATCH_JOBS,
            most_bytes=1,
            in_flight=tuning.CONFIRMS_IN_FLIGHT,
        )
        self.add = self._coalescer.add
        """Confirm the job, then pass it to `answered`. Its `confirm` is False if it may start."""

    async def close(self) -> None:
        """Stop confirming."""
        await self._coalescer.close()

    async def _send(self, jobs: list[ClaimedJob]) -> None:
        try:
            for job in await self._confirm(jobs):
                asyncio.get_running_loop().call_later(tuning.HOLD_LOOK_SECONDS, self._later, [job])
        finally:
            self._answered(jobs)

    @failpoints.before("worker.confirming")
    async def _confirm(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        """Confirm the jobs. Returns the jobs that the server could not confirm yet."""
        async for _ in JitteredBackoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS):
            jobs = [job for job in jobs if job in self._unstarted]
            if not jobs:
                break
            request = pb.HeartbeatsRequest(
                worker_id=self._worker_id,
                claims=[job.claim() for job in jobs],
                starting={job.handler.topic for job in jobs},
            )
            within_seconds = self._start_within_seconds
            request.start_within.FromTimedelta(timedelta(seconds=within_seconds))
            sent_at = lease_clock()
            for job in jobs:  # they have their slots, and wait for nothing else
                job.release_by = max(job.release_by, sent_at + within_seconds)
            timeout_seconds = max(tuning.TRY_TIMEOUT_SECONDS, 2 * within_seconds)
            try:
                response = await self._connection.try_once(
                    self._connection.stub.Heartbeats, request, timeout_seconds
                )
            except (grpc.aio.AioRpcError, ClientClosed):
                continue
            finally:
                self._answer_seconds = lease_clock() - sent_at
            return self._take(jobs, sent_at, sent_at + within_seconds, response)
        return []

    @property
    def _start_within_seconds(self) -> float:
        """How long after it is sent a confirmation may start a handler: long enough for the next answer.

        A fixed time would let nothing start once the database is slower than that.
        """
        longest = min(
            tuning.CONFIRMED_START_LONGEST_SECONDS, tuning.CONFIRMED_START_SHARE * self._terms.lease_seconds
        )
        wanted = tuning.CONFIRMED_START_SECONDS + 2 * self._answer_seconds
        return max(tuning.CONFIRMED_START_SECONDS, min(wanted, longest))

    def _take(
        self, jobs: list[ClaimedJob], sent_at: float, start_by: float, response: pb.HeartbeatsResponse
    ) -> list[ClaimedJob]:
        self._clock.compare(sent_at, response.clock_seconds, response.clock_id)
        lost = {(claim.job_id, claim.run) for claim in response.stop}
        self._stop(
            [job for job in jobs if (job.job_id, job.run) in lost],
            "the server gave it to another worker, or it was canceled",
        )
        unknown = {(claim.job_id, claim.run) for claim in response.unknown}
        locked = [job for job in jobs if (job.job_id, job.run) in unknown]
        held_until = sent_at + self._terms.lease_seconds
        for job in jobs:
            if job in locked:
                job.spared_until = held_until
                continue
            job.lease_end = held_until
            job.start_by = min(start_by, held_until)
            job.confirm, job.is_counted = False, True
        if response.paused:
            self._recall(response.paused)
        return locked


logger = logging.getLogger("pulse.worker")


class Heartbeats:
    """Extends the leases of all started jobs once per interval, with one call.

    Jobs that the server no longer assigns to this worker, and jobs whose lease expired because no heartbeat
    succeeded, are passed to `lost` in the event loop. The first heartbeat comes soon after the start: from
    then on the attempt counts. Jobs that finish earlier need none. A result that waits for the server is kept
    when its lease expires: the server decides.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        in_use: Callable[[], Endpoint],
        worker_id: str,
        terms: LeaseTerms,
        held: dict[str, ClaimedJob],
        lost: Callable[[list[ClaimedJob], str], None],
        releases: Releases,
        woken: threading.Event,
        *,
        stuck: Callable[[], ClaimedJob | None],
    ) -> None:
        """`stuck` returns a job whose handler blocks the event loop for good: the process ends.

        `in_use` returns the server of the worker's stream. If it is away, heartbeats go to the others.
        `woken` makes the thread extend due jobs at once.
        """
        self._endpoint = endpoint
        self._in_use = in_use
        self._worker_id = worker_id
        self._terms = terms
        self._held = held
        self._lost = lost
        self._releases = releases
        self._stuck = stuck
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._is_over = threading.Event()
        self._is_woken = woken
        self._is_failing = False
        # Progress waits until then, after a heartbeat that failed.
        self._progress_from = 0.0
        # Over making the stub and closing the channel: a method of a closed channel crashes the process.
        self._opening = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._stubs: dict[str, PulseServiceStub] = {}
        self._thread = threading.Thread(target=self._run, name="pulse-heartbeats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Returns at once; a call in flight is canceled."""
        self._is_over.set()
        self._is_woken.set()
        with self._opening:
            for channel in self._channels.values():
                channel.close()

    def _run(self) -> None:
        beat_at = lease_clock() + self._terms.heartbeat_seconds
        while True:
            is_woken = self._is_woken.wait(min(tuning.HOLD_LOOK_SECONDS, self._terms.heartbeat_seconds))
            self._is_woken.clear()
            if self._is_over.is_set():
                return
            try:
                if (job := self._stuck()) is not None:
                    self._end_process(job)
                is_due = is_woken or lease_clock() >= beat_at
                went_well = self._extend_due(is_due)
                if is_due or not went_well:
                    pause = self._terms.heartbeat_seconds
                    beat_at = lease_clock() + (
                        pause if went_well else min(tuning.HEARTBEAT_RETRY_SECONDS, pause / 2)
                    )
                self._releases.send(self._release)
            except Exception:
                if self._is_over.is_set():
                    return  # the channel was closed during the call
                logger.exception("A heartbeat failed in an unexpected way.")
                beat_at = lease_clock() + tuning.HEARTBEAT_RETRY_SECONDS

    def _extend_due(self, is_due: bool) -> bool:
        """Extend jobs that started recently or have progress to store, and all others if due.

        Returns whether every call succeeded.
        """
        interval, lease = self._terms.heartbeat_seconds, self._terms.lease_seconds
        now = lease_clock()
        latest = now - tuning.FIRST_HEARTBEAT_SECONDS
        # list() of a dict's values is atomic: the event loop cannot change the dict during the
        # copy.
        due = [
            job
            for job in list(self._held.values())
            if job.has_begun
            and (
                (is_due and job.lease_end - lease + interval / 2 <= now)
                or (not job.is_counted and job.outcome is None and job.begun_at <= latest)
                or (unsent_progress(job) is not None and self._may_send_progress(job, now))
            )
        ]
        went_well = True
        for some in in_batches(due, tuning.CLAIMS_PER_HEARTBEAT):
            went_well &= self._extend(some)
        if not went_well:
            self._progress_from = lease_clock() + tuning.HEARTBEAT_RETRY_SECONDS
        if is_due:
            self._give_up_expired()
        return went_well

    def _may_send_progress(self, job: ClaimedJob, now: float) -> bool:
        # The last write started the lease. Progress that is unsent at the end goes with the report.
        last_write = job.lease_end - self._terms.lease_seconds
        return (
            job.outcome is None and now >= self._progress_from and now >= last_write + tuning.PROGRESS_SECONDS
        )

    def _give_up_expired(self) -> None:
        now = lease_clock()
        # Jobs that have not started are confirmed first, however old their claim is. To give one up here,
        # while the server stores the confirmation, would cost an attempt that never started.
        expired = [
            job
            for job in list(self._held.values())
            if job.has_begun
            and job.outcome is None
            and self._terms.is_over(job, now)
            and not completes_in_transaction(job.context)  # it is fenced by the database
        ]
        if expired:
            logger.warning(
                "No heartbeat got through to pulsed at %s for %.0f s: %d jobs are given up, to run again.",
                self._endpoint.address,
                self._terms.lease_seconds,
                len(expired),
            )
            self._in_loop(self._stop_expired, expired)

    @failpoints.before("worker.beating")
    def _extend(self, jobs: Sequence[ClaimedJob]) -> bool:
        reported = [unsent_progress(job) for job in jobs]
        request = pb.HeartbeatsRequest(
            worker_id=self._worker_id,
            claims=[job.claim() for job in jobs],
            progress=[encode_progress(one, index) for index, one in enumerate(reported) if one is not None],
            memory_bytes=memory_bytes(),
        )
        sent_at = lease_clock()
        try:
            response = self._call("Heartbeats", request, self._timeout_seconds)
        except grpc.RpcError as error:
            if _is_database_outage(error):
                self._terms.spared_until = sent_at + self._terms.lease_seconds
            if not self._is_failing and not self._is_over.is_set():
                self._is_failing = True
                logger.warning(
                    "A heartbeat for %d jobs did not get through to pulsed at %s; trying again. %s",
                    len(jobs),
                    self._endpoint.address,
                    self._reason(error),
                )
            return False
        self._is_failing = False
        lost = {(claim.job_id, claim.run) for claim in response.stop}
        unknown = {(claim.job_id, claim.run) for claim in response.unknown}
        held_until = sent_at + self._terms.lease_seconds
        for job, progress in zip(jobs, reported, strict=True):
            if unknown and (job.job_id, job.run) in unknown:
                job.spared_until = held_until
            elif not lost or (job.job_id, job.run) not in lost:
                job.lease_end, job.is_counted = held_until, True
                if progress is not None:
                    job.sent_progress = progress
        if lost:
            disowned = [job for job in jobs if (job.job_id, job.run) in lost]
            reason = "the server reports that it was canceled, or is no longer held here"
            self._in_loop(self._lost, disowned, reason)
        return not unknown

    def _end_process(self, job: ClaimedJob) -> None:
        """Report a handler that blocks the event loop although it was interrupted, and end the process."""
        stack = stack_of_thread(self._loop_thread_id)
        logger.critical(
            "Job %s (%s) blocks the event loop and does not end, although it was "
            "interrupted: the process exits. It is here:\n%s",
            job.job_id,
            job.handler.topic,
            stack,
        )
        job.outcome = given_up(job, stack)
        if job.outcome is not None:  # else it was interrupted for another reason: its lease ends
            request = pb.ReportResultsRequest(worker_id=self._worker_id)
            request.MergeFromString(encode_results([job]))
            with contextlib.suppress(grpc.RpcError):
                self._call("ReportResults", request, tuning.HEARTBEAT_TIMEOUT_SECONDS)
        send_events()
        logging.shutdown()
        end_at_once(os.EX_SOFTWARE)

    def _release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        response: pb.ReleaseResponse = self._call("Release", request, self._timeout_seconds)
        return response

    def _call(self, method: str, request: object, timeout_seconds: float) -> Any:
        """Call the server in use. While it is away, call each of the others. The calls are repeatable."""
        first = self._in_use()
        rest = [one for one in self._endpoint.each if one is not first]
        while True:
            call = getattr(self._stub(first), method)
            try:
                return call(request, timeout=timeout_seconds, metadata=self._endpoint.metadata)
            except grpc.RpcError as error:
                if not rest or is_from_pulsed(error) or self._is_over.is_set():
                    raise
                first = rest.pop(0)

    @property
    def _timeout_seconds(self) -> float:
        return max(0.2, min(tuning.HEARTBEAT_TIMEOUT_SECONDS, self._terms.heartbeat_seconds / 2))

    def _stub(self, server: Endpoint) -> PulseServiceStub:
        with self._opening:
            if server.address not in self._stubs:
                if self._is_over.is_set():
                    raise ClientClosed("The worker has stopped.")
                channel = self._channels[server.address] = open_blocking_channel(server)
                self._stubs[server.address] = PulseServiceStub(channel)
            return self._stubs[server.address]

    def _reason(self, error: grpc.RpcError) -> str:
        if not isinstance(error, grpc.Call):
            return ""
        is_pulsed = is_from_pulsed(error)
        return translate(self._endpoint, error.code(), error.details() or "", is_pulsed=is_pulsed).message

    def _stop_expired(self, jobs: list[ClaimedJob]) -> None:
        # The event loop may have been blocked since: by a handler that has ended now, or until after a
        # heartbeat that succeeded.
        now = lease_clock()
        expired = [job for job in jobs if job.outcome is None and self._terms.is_over(job, now)]
        self._lost(expired, "its lease ran out, no heartbeat got through")

    def _in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._is_over.set()  # the event loop is closed; no handler runs


def _is_database_outage(error: grpc.RpcError) -> bool:
    """True if pulsed reports that its database does not answer or has no space."""
    return (
        isinstance(error, grpc.Call)
        and error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
        and is_from_pulsed(error)
    )
