"""Extends the leases from a thread of its own, so that a handler that blocks the event loop keeps its job."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import grpc

from pulse import failpoints, tuning
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.channels import open_blocking_channel
from pulse.wire.endpoint import Endpoint
from pulse.wire.failures import is_from_pulsed, translate
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms
from pulse.worker.returns import Returns

logger = logging.getLogger("pulse.worker")


class Heartbeats:
    """Beats every job whose handler has started once per interval, with one call for all.

    Jobs that the server disowns, and jobs whose lease ran out because no beat got through, are handed to
    `lost` in the event loop. The first beat comes soon after the start: from it on the attempt counts. Jobs
    that are done before are never beaten. A result that waits for the server is not given up when its lease
    ends: the server judges it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        worker_id: str,
        terms: LeaseTerms,
        held: dict[str, HeldJob],
        lost: Callable[[list[HeldJob], str], None],
        returns: Returns,
    ) -> None:
        self._endpoint = endpoint
        self._worker_id = worker_id
        self._terms = terms
        self._held = held
        self._lost = lost
        self._returns = returns
        self._loop = asyncio.get_running_loop()
        self._is_over = threading.Event()
        self._is_woken = threading.Event()
        self._is_failing = False
        self._channel: grpc.Channel | None = None
        self._thread = threading.Thread(target=self._beat_until_over, name="pulse-heartbeats", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more. Returns at once; a call that is under way is given up."""
        self._is_over.set()
        self._is_woken.set()
        if self._channel is not None:
            self._channel.close()

    def wake(self) -> None:
        """Beat now what is due, and follow the terms as they are from here on."""
        self._is_woken.set()

    def _beat_until_over(self) -> None:
        beat_at = lease_clock() + self._terms.heartbeat_seconds
        while True:
            is_woken = self._is_woken.wait(min(tuning.HOLD_LOOK_SECONDS, self._terms.heartbeat_seconds))
            self._is_woken.clear()
            if self._is_over.is_set():
                return
            try:
                is_due = is_woken or lease_clock() >= beat_at
                went_well = self._beat(is_due)
                if is_due or not went_well:
                    pause = self._terms.heartbeat_seconds
                    beat_at = lease_clock() + (
                        pause if went_well else min(tuning.BEAT_RETRY_SECONDS, pause / 2)
                    )
                self._returns.send(self._release)
            except Exception:
                if self._is_over.is_set():
                    return  # the channel was closed under the call
                logger.exception("A heartbeat failed in an unexpected way.")
                beat_at = lease_clock() + tuning.BEAT_RETRY_SECONDS

    def _beat(self, is_due: bool) -> bool:
        """Beat what has only begun, and all else if it is due. Returns whether every call got through."""
        interval, lease = self._terms.heartbeat_seconds, self._terms.lease_seconds
        now = lease_clock()
        latest = now - tuning.FIRST_BEAT_SECONDS
        # list() of a dict's values is one step for the interpreter: the event loop cannot change it midway.
        due = [
            job
            for job in list(self._held.values())
            if job.has_begun
            and (
                (is_due and job.lease_end - lease + interval / 2 <= now)
                or (not job.is_counted and job.outcome is None and job.begun_at <= latest)
            )
        ]
        went_well = True
        for begin in range(0, len(due), tuning.CLAIMS_PER_BEAT):
            went_well &= self._beat_some(due[begin : begin + tuning.CLAIMS_PER_BEAT])
        if is_due:
            self._give_up_expired()
        return went_well

    def _give_up_expired(self) -> None:
        now = lease_clock()
        # One that has not begun is confirmed before it begins, however old its claim is: to give it up here,
        # while the server takes its confirmation, would cost an attempt that never started.
        expired = [
            job
            for job in list(self._held.values())
            if job.has_begun and job.outcome is None and self._terms.is_over(job, now)
        ]
        if expired:
            logger.warning(
                "No heartbeat got through to pulsed at %s for %.0f s: %d jobs are given up, to run again.",
                self._endpoint.address,
                self._terms.lease_seconds,
                len(expired),
            )
            self._tell_lost(expired, "its lease ran out, no heartbeat got through")

    @failpoints.before("worker.beating")
    def _beat_some(self, jobs: list[HeldJob]) -> bool:
        request = pb.HeartbeatsRequest(worker_id=self._worker_id, claims=[job.claim() for job in jobs])
        sent_at = lease_clock()
        try:
            response = self._stub().Heartbeats(
                request, timeout=self._timeout_seconds, metadata=self._endpoint.metadata
            )
        except grpc.RpcError as error:
            if _tells_of_an_outage(error):
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
        lost = {(claim.job_id, claim.attempt) for claim in response.stop}
        unknown = {(claim.job_id, claim.attempt) for claim in response.unknown}
        held_until = sent_at + self._terms.lease_seconds
        for job in jobs:
            if unknown and (job.job_id, job.attempt) in unknown:
                job.spared_until = held_until
            elif not lost or (job.job_id, job.attempt) not in lost:
                job.lease_end, job.is_counted = held_until, True
        if lost:
            disowned = [job for job in jobs if (job.job_id, job.attempt) in lost]
            self._tell_lost(disowned, "the server says that it was cancelled, or is no longer ours")
        return not unknown

    def _release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        return self._stub().Release(request, timeout=self._timeout_seconds, metadata=self._endpoint.metadata)

    @property
    def _timeout_seconds(self) -> float:
        return max(0.2, min(tuning.BEAT_TIMEOUT_SECONDS, self._terms.heartbeat_seconds / 2))

    def _stub(self) -> PulseServiceStub:
        if self._channel is None:
            self._channel = open_blocking_channel(self._endpoint)
        return PulseServiceStub(self._channel)

    def _reason(self, error: grpc.RpcError) -> str:
        if not isinstance(error, grpc.Call):
            return ""
        is_pulsed = is_from_pulsed(error)
        return translate(self._endpoint, error.code(), error.details() or "", is_pulsed=is_pulsed).message

    def _tell_lost(self, jobs: list[HeldJob], reason: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lost, jobs, reason)
        except RuntimeError:
            self._is_over.set()  # the event loop is gone, and the handlers with it


def _tells_of_an_outage(error: grpc.RpcError) -> bool:
    """Whether pulsed itself says that its database does not answer, or has no room."""
    return (
        isinstance(error, grpc.Call)
        and error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
        and is_from_pulsed(error)
    )
