"""Confirms claims with the server right before their handlers start.

A retry, a last attempt and a job whose claim may be out of date are confirmed. The confirmation is a
heartbeat: from then on the attempt counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

import grpc.aio

from pulse import failpoints, tuning
from pulse.errors import ClientClosed
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff
from pulse.wire.streams import Coalescer
from pulse.worker.clock import ServerClock, lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms


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
        unstarted: set[HeldJob],
        *,
        stop: Callable[[Iterable[HeldJob], str], None],
        recall: Callable[[Collection[str]], None],
        answered: Callable[[list[HeldJob]], None],
        later: Callable[[list[HeldJob]], None],
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
        self._coalescer: Coalescer[HeldJob] = Coalescer(
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

    async def _send(self, jobs: list[HeldJob]) -> None:
        try:
            for job in await self._confirm(jobs):
                asyncio.get_running_loop().call_later(tuning.HOLD_LOOK_SECONDS, self._later, [job])
        finally:
            self._answered(jobs)

    @failpoints.before("worker.confirming")
    async def _confirm(self, jobs: list[HeldJob]) -> list[HeldJob]:
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
        self, jobs: list[HeldJob], sent_at: float, start_by: float, response: pb.HeartbeatsResponse
    ) -> list[HeldJob]:
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
