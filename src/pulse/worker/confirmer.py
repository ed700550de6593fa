"""Beats a job once before its handler starts, where the server asks for it.

The server asks when a delivery may be long past, so that a job which never reached a worker costs no attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import grpc.aio

from pulse import failpoints, tuning
from pulse.errors import ClientClosed
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.backoff import Backoff
from pulse.wire.coalescing import Coalescer
from pulse.wire.connection import Connection
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms

logger = logging.getLogger("pulse.worker")


class Confirmer:
    """Confirms jobs in batches. Those that are still ours become ready, the others are dropped."""

    def __init__(
        self,
        connection: Connection,
        worker_id: str,
        terms: LeaseTerms,
        *,
        ready: Callable[[HeldJob], None],
        stop: Callable[[Iterable[HeldJob], str], None],
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._terms = terms
        self._ready = ready
        self._stop = stop
        self._coalescer: Coalescer[HeldJob] = Coalescer(
            self._send,
            size_of=lambda _: 0,
            most_items=tuning.CONFIRM_BATCH_JOBS,
            most_bytes=1,
            in_flight=tuning.CONFIRMS_IN_FLIGHT,
        )
        self.add = self._coalescer.add
        """Confirm this job, then make it ready."""

    async def close(self) -> None:
        """Confirm nothing any more."""
        await self._coalescer.close()

    @failpoints.before("worker.confirming")
    async def _send(self, jobs: list[HeldJob]) -> None:
        backoff = Backoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS)
        while jobs := [job for job in jobs if not job.stop_reason]:
            request = pb.HeartbeatsRequest(worker_id=self._worker_id, claims=[job.claim() for job in jobs])
            sent_at = lease_clock()
            try:
                response = await self._connection.try_once(self._connection.stub.Heartbeats, request)
            except (grpc.aio.AioRpcError, ClientClosed):
                await asyncio.sleep(backoff.next_seconds())
                jobs = self._drop_expired(jobs)
                continue
            lost = {(claim.job_id, claim.attempt) for claim in response.stop}
            self._stop(
                [job for job in jobs if (job.job_id, job.attempt) in lost],
                "the server gave it to somebody else",
            )
            unknown = {(claim.job_id, claim.attempt) for claim in response.unknown}
            held_until = sent_at + self._terms.lease_seconds
            for job in jobs:
                if (job.job_id, job.attempt) in unknown:
                    job.spared_until = held_until
                    self._coalescer.add_later(job, tuning.RETRY_LONGEST_SECONDS)
                elif not job.stop_reason:
                    job.lease_end = held_until
                    self._ready(job)
            return

    def _drop_expired(self, jobs: list[HeldJob]) -> list[HeldJob]:
        now = lease_clock()
        expired = [job for job in jobs if self._terms.is_over(job, now) and not job.stop_reason]
        if expired:
            logger.warning("%d jobs could not be confirmed before their leases ended.", len(expired))
            self._stop(expired, "it could not be confirmed in time")
        return [job for job in jobs if not job.stop_reason]
