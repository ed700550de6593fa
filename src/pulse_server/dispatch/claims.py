"""Claims: take jobs for workers, release unstarted jobs, and find claims that ended elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from time import time_ns

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import LimitedClaims, LimitedHandover
from pulse_server.dispatch.store import PostgresLimitedClaims
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reads import ClaimedRows
from pulse_server.jobs.reports import NO_PROGRESS, Slots, Taker
from pulse_server.jobs.rules import Claim, ClaimedJob, Level, ProgressReport, ReleaseAnswer
from pulse_server.jobs.store import PostgresJobRepo

# A job whose row is locked is released once it is free. Past these tries its lease expires instead.
RELEASE_TRIES = 20
RELEASE_PAUSE = timedelta(seconds=1)
# How often spared workers are recorded, if there are any. The least of this and a twelfth of a lease.
SPARING_INTERVAL = timedelta(milliseconds=500)
# How many spared workers may wait to be recorded.
SPARED_WORKERS = 10_000
# Claims per look-up of those that other servers reported as ended. One look-up at a time.
REPORTED_CLAIMS = 1000
# After a look-up that the database did not answer, and after one that found a reported claim in force. No
# server reports such a claim, unless a failover has lost the commit.
REPORTED_PAUSE = timedelta(seconds=1)

log = logging.getLogger(__name__)

# A worker starts a job within a second of its claim, or extends its lease first. So one that is this old and
# was never extended has not started, and will not before its worker has asked. ADR-0043
_UNREAD_FOR = timedelta(seconds=2)


class Claims:
    def __init__(
        self,
        repo: PostgresJobRepo,
        limits: PostgresLimitedClaims,
        publisher: Publisher,
        spared_workers: SparedWorkers,
        lease_ttl: timedelta,
    ) -> None:
        self._repo = repo
        self._limits = limits
        self._publisher = publisher
        self._spared_workers = spared_workers
        self._lease_ttl = lease_ttl
        self._releasing: set[asyncio.Task[None]] = set()

    async def claim(
        self, topics: Collection[str], slots: Slots, levels: Sequence[Level] | None = None
    ) -> list[ClaimedJob] | ClaimedRows:
        """Lease the best ready jobs of the topics or levels to the slots' workers, best first.

        To be published by the caller.
        """
        return await self._repo.claim_batch(topics, slots, self._lease_ttl, levels)

    def publish(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        """The jobs were claimed by a statement that was sent at that time, in nanoseconds."""
        self._publisher.claimed(jobs, sent_at)

    async def claim_limited(self, topics: Sequence[str], slots: Slots) -> LimitedClaims:
        """Claim jobs of limited topics, in the given order and within their limits. ADR-0064"""
        sent_at = time_ns()
        answer = await self._limits.claim_limited(topics, slots, self._lease_ttl)
        self._publisher.claimed(answer.jobs, sent_at)
        return answer

    async def hand_over(
        self, jobs: Sequence[NewJob], takers: Sequence[Taker | None], levels: Sequence[Level] | None
    ) -> tuple[list[Submitted | PulseError], list[ClaimedJob]]:
        """Store the jobs, each leased to its taker unless other jobs come first, which wait at these levels.

        Returns an answer for each, in order, and the jobs that were taken.
        """
        sent_at = time_ns()
        answers = await self._repo.hand_over_jobs(jobs, takers, self._lease_ttl, levels)
        taken = [
            _taken(job, taker)
            for job, taker, answer in zip(jobs, takers, answers, strict=True)
            if taker is not None and isinstance(answer, Submitted) and answer.is_taken
        ]
        self._publisher.handed_over(taken, sent_at)
        return answers, taken

    async def hand_over_limited(self, topic: str, jobs: Sequence[NewJob], slots: Slots) -> LimitedHandover:
        """Store jobs of a limited topic, and lease those within limits to the slots. ADR-0064"""
        sent_at = time_ns()
        handover = await self._limits.hand_over_limited(topic, jobs, slots, self._lease_ttl)
        new = {
            answer.job_id for answer in handover.answers if isinstance(answer, Submitted) and answer.is_taken
        }
        taken = handover.claims.jobs
        self._publisher.handed_over([job for job in taken if job.id in new], sent_at)
        self._publisher.claimed([job for job in taken if job.id not in new], sent_at)
        return handover

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        return await self._repo.topics_with_ready_jobs(topics)

    async def still_held(self, claims: Sequence[Claim]) -> set[Claim]:
        return await self._repo.current_claims(claims)

    async def release(
        self, claims: Sequence[Claim], progress: Mapping[Claim, ProgressReport] = NO_PROGRESS
    ) -> ReleaseAnswer:
        """Give the jobs back without costing an attempt. One whose row is locked stays with its claim.

        Its worker tries again: until then its lease may expire, and must cost no attempt. `progress` is of
        handlers that were interrupted.
        """
        try:
            released = await self._repo.release_jobs(claims, progress=progress)
        except PulseError:
            self._spared_workers.spare_holders(claims)
            raise
        self._publisher.released(claims, released)
        missing = [claim for claim in claims if claim.job_id not in released]
        locked = await self._repo.current_claims(missing) if missing else set()
        self._spared_workers.spare_holders(locked)
        return ReleaseAnswer(len(released), [claim for claim in missing if claim in locked])

    async def release_unread(self, claims: Sequence[Claim]) -> list[Claim]:
        """Release jobs sent to a worker that does not read, unless a handler may have started.

        Returns the released claims. Claims that are too young or were extended stay held.
        """
        if not claims:
            return []
        released = await self._repo.release_jobs(claims, unread_for=_UNREAD_FOR)
        self._publisher.released(claims, released)
        return [claim for claim in claims if claim.job_id in released]

    def release_soon(self, claims: Sequence[Claim]) -> None:
        """Release undelivered jobs in the background. If that fails, their leases expire."""
        if not claims:
            return
        task = asyncio.create_task(self._release_undelivered(claims))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def finish_releases(self, patience: timedelta) -> None:
        """Return once all pending releases are done, or after `patience`."""
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=patience.total_seconds())

    async def _release_undelivered(self, claims: Sequence[Claim]) -> None:
        for _ in range(RELEASE_TRIES):
            try:
                released, locked = await self.release(claims)
            except PulseError as error:
                log.warning("release_failed", extra={"jobs": len(claims), "reason": str(error)})
                return
            log.info("released_undelivered", extra={"jobs": released})
            if not locked:
                return
            claims = locked
            await asyncio.sleep(RELEASE_PAUSE.total_seconds())
        log.warning("release_failed", extra={"jobs": len(claims), "reason": "Their rows are locked."})


def _taken(job: NewJob, taker: Taker) -> ClaimedJob:
    """The job as it goes to the worker that took it at its submit."""
    return ClaimedJob(
        job.id,
        job.topic,
        job.payload,
        1,
        1,
        job.priority,
        job.max_attempts,
        job.metadata,
        job.idempotency_key,
        taker.worker_id,
        # Like claim_batch: a last attempt is confirmed before it starts.
        taker.confirms and job.max_attempts == 1,
        0.0,
    )


class SparedWorkers:
    """Records workers whose heartbeats arrive but cannot be stored, for one lease each.

    While the record is valid, no server reaps the worker's jobs. A recorded heartbeat counts as
    long as a stored one would, and only for its worker. ADR-0042
    """

    def __init__(self, repo: PostgresJobRepo, lease_ttl: timedelta) -> None:
        self._repo = repo
        self._lease_ttl = lease_ttl
        self._waiting: dict[str, None] = {}
        # The loop and the watchdog record. Each returns only when the record of the other is stored, too.
        self._recording = asyncio.Lock()
        self.loop = Loop("spared_workers", self.record, min(SPARING_INTERVAL, lease_ttl / 12))

    def spare_holders(self, claims: Iterable[Claim]) -> None:
        """Record the workers that hold the claims soon."""
        self.spare({claim.worker_id for claim in claims if claim.worker_id is not None})

    def spare(self, worker_ids: Iterable[str]) -> None:
        """Record the workers soon. A failed record is tried again."""
        for worker_id in worker_ids:
            self._waiting.pop(worker_id, None)
            self._waiting[worker_id] = None
        while len(self._waiting) > SPARED_WORKERS:
            del self._waiting[next(iter(self._waiting))]

    async def record(self) -> None:
        """Record the workers that wait for it. Returns once all that were spared before are recorded."""
        async with self._recording:
            if not self._waiting:
                return
            worker_ids, self._waiting = self._waiting, {}
            try:
                await self._repo.spare_workers(worker_ids, self._lease_ttl)
            except PulseError:
                newer, self._waiting = self._waiting, worker_ids
                self.spare(newer)
                raise


class Reconciler:
    """Finds the claims of connected workers that have ended elsewhere.

    An announcement may be lost, and a report may go to another server: the database knows. Nor is an
    announcement trusted: it says which claims to look up.
    """

    def __init__(
        self,
        claims: Claims,
        roster: Roster,
        *,
        interval: timedelta,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._claims = claims
        self._roster = roster
        self._clock = clock
        self._suspects: frozenset[Claim] = frozenset()
        # Claims that workers here hold and another server reported as ended. True: their leases expired.
        self._reported: dict[Claim, bool] = {}
        self._rest_until = clock()
        self.loop = Loop("reconciler", self.reconcile, interval)
        self.reported_loop = Loop("reported_claims", self.look_up_reported, REPORTED_PAUSE)

    @property
    def loops(self) -> tuple[Loop, Loop]:
        return self.loop, self.reported_loop

    async def reconcile(self) -> None:
        """Stop jobs whose claims have ended. Checks only claims that were held at the last call."""
        held = self._roster.held_claims()
        old, self._suspects = self._suspects & held, held
        if not old:
            return
        self._roster.stop_claims(old - await self._claims.still_held(list(old)))

    def report_ended(self, ended: Iterable[Claim], lapsed: Iterable[Claim]) -> None:
        """Look these claims up soon, if workers here hold them. `lapsed`: because their leases expired."""
        for claims, has_lapsed in ((ended, False), (lapsed, True)):
            for held in self._roster.held_among(claims):
                self._reported[held] = has_lapsed
        if self._reported:
            self.reported_loop.nudge()

    async def look_up_reported(self) -> None:
        """Stop the jobs of reported claims that have really ended."""
        while self._reported:
            # Whatever comes, the database gets one look-up at a time, and a pause after each false report.
            await asyncio.sleep(max(0.0, self._rest_until - self._clock()))
            some = dict(islice(self._reported.items(), REPORTED_CLAIMS))
            for claim in some:
                del self._reported[claim]
            try:
                holding = await self._claims.still_held(list(some))
            except PulseError:
                self._reported = some | self._reported
                raise
            self._roster.stop_claims(
                claim for claim, has_lapsed in some.items() if not has_lapsed and claim not in holding
            )
            self._roster.expire_claims(
                claim for claim, has_lapsed in some.items() if has_lapsed and claim not in holding
            )
            if holding:
                self._rest_until = self._clock() + REPORTED_PAUSE.total_seconds()
                log.warning("ended_claims_hold", extra={"claims": len(holding)})

    def suspect_all(self) -> None:
        """Reconcile soon, with every claim that is held now."""
        self._suspects = self._roster.held_claims()
        self.loop.nudge()
