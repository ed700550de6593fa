"""Handing jobs out, and keeping them handed out: claims, leases and releases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum, auto
from time import time_ns

from pulse_server import tuning
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import BeatAnswer, Claim, ClaimedJob, NewJob, ReleaseAnswer, Submitted
from pulse_server.domain.status import JobStatus
from pulse_server.repos.jobs import JobRepo, Slots, Taker
from pulse_server.service.group_commit import GroupCommit
from pulse_server.service.signals import Signals
from pulse_server.service.spared_workers import SparedWorkers
from pulse_server.service.transitions import Transitions, changed
from pulse_server.telemetry.metrics import Metrics
from pulse_server.telemetry.tracing import ClaimSpans

# A worker starts a job within a second of its claim, or beats it first. So one that is this old and was never
# beaten has not started, and will not before its worker has asked. ADR-0043
_UNREAD_FOR = timedelta(seconds=2)


class _Lease(Enum):
    EXTENDED = auto()
    LOST = auto()
    UNKNOWN = auto()


class Claims:
    def __init__(
        self,
        repo: JobRepo,
        signals: Signals,
        lease_ttl: timedelta,
        metrics: Metrics | None = None,
        spans: ClaimSpans | None = None,
        transitions: Transitions | None = None,
        spared_workers: SparedWorkers | None = None,
    ) -> None:
        self._repo = repo
        self._signals = signals
        self._lease_ttl = lease_ttl
        self._metrics = metrics or Metrics()
        self._spans = spans
        self._transitions = transitions or Transitions()
        self._spared_workers = spared_workers or SparedWorkers(repo, lease_ttl)
        self._beat_slow = min(tuning.BEAT_SLOW, lease_ttl / 10).total_seconds()
        self._beats: GroupCommit[Claim, _Lease] = GroupCommit(
            self._extend, lanes=1, limit=tuning.HEARTBEAT_BATCH
        )
        self._beats.on_commit(lambda size: self._metrics.batch_size.observe("heartbeat", value=size))
        self._beats_failed: Callable[[], None] = lambda: None

    def on_failed_beats(self, callback: Callable[[], None]) -> None:
        """Have this called when a statement with beats failed: leases end though their workers live."""
        self._beats_failed = callback

    async def claim(self, topics: Collection[str], slots: Slots) -> list[ClaimedJob]:
        """Lease the best ready jobs of these topics to the slots' workers, best first."""
        sent_at = time_ns()
        jobs = await self._repo.claim_batch(topics, slots, self._lease_ttl)
        self._note(jobs, sent_at)
        return jobs

    async def hand_over(
        self, jobs: Sequence[NewJob], takers: Sequence[Taker | None]
    ) -> tuple[list[Submitted | PulseError], list[ClaimedJob]]:
        """Store the jobs, each leased to its taker unless something stands before it.

        Answers for each, in order, and returns those that were taken.
        """
        sent_at = time_ns()
        answers = await self._repo.hand_over_jobs(jobs, takers, self._lease_ttl)
        taken = [
            _taken(job, taker)
            for job, taker, answer in zip(jobs, takers, answers, strict=True)
            if taker is not None and isinstance(answer, Submitted) and answer.is_taken
        ]
        self._transitions.tell(lambda: [changed(job.id, job.topic, JobStatus.PENDING) for job in taken])
        self._note(taken, sent_at)
        return answers, taken

    def _note(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        if not jobs:
            return
        if self._spans is not None:
            self._spans.record(jobs, sent_at)
        metrics = self._metrics
        waited = [(job.topic, job.waited_seconds) for job in jobs]
        metrics.count_and_observe(metrics.claimed, metrics.queue_wait, waited)
        self._transitions.tell(
            lambda: [
                changed(job.id, job.topic, JobStatus.RUNNING, job.attempt, job.worker_id) for job in jobs
            ]
        )

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        return await self._repo.topics_with_ready_jobs(topics)

    async def beat(self, claims: Sequence[Claim]) -> BeatAnswer:
        """Extend the leases. Returns the claims that are lost, and those whose rows are locked."""
        with self._spared_if_slow(claims):
            leases = await self._beats.add_all(claims)
        answer = BeatAnswer([], [])
        for claim, lease in zip(claims, leases, strict=True):
            if lease is not _Lease.EXTENDED:
                (answer.lost if lease is _Lease.LOST else answer.unknown).append(claim)
        return answer

    async def release(self, claims: Sequence[Claim]) -> ReleaseAnswer:
        """Give the jobs back, each with its attempt. One that is locked is not, and stays with its claim.

        Its worker tries again: until then its lease may expire, and must cost no attempt.
        """
        try:
            released = await self._repo.release_jobs(claims)
        except PulseError:
            self._spare(claims)
            raise
        self._note_released(claims, released)
        missing = [claim for claim in claims if claim.job_id not in released]
        locked = await self._repo.current_claims(missing) if missing else set()
        self._spare(locked)
        return ReleaseAnswer(len(released), [claim for claim in missing if claim in locked])

    async def release_unread(self, claims: Sequence[Claim]) -> list[Claim]:
        """Give back what was sent to a worker that does not read, as far as no handler can have started.

        Returns those that were given back. The others are too young, or were beaten.
        """
        if not claims:
            return []
        released = await self._repo.release_jobs(claims, unread_for=_UNREAD_FOR)
        self._note_released(claims, released)
        return [claim for claim in claims if claim.job_id in released]

    def _note_released(self, claims: Sequence[Claim], released: Mapping[str, str]) -> None:
        self._metrics.count_topics(self._metrics.released, released.values())
        self._transitions.tell(
            lambda: [
                changed(
                    claim.job_id, released[claim.job_id], JobStatus.RETRYING, claim.attempt, claim.worker_id
                )
                for claim in claims
                if claim.job_id in released
            ]
        )
        self._signals.ready(set(released.values()))

    async def still_held(self, claims: Sequence[Claim]) -> set[Claim]:
        return await self._repo.current_claims(claims)

    async def _extend(self, claims: list[Claim]) -> list[_Lease]:
        try:
            extended = await self._repo.extend_leases(claims, self._lease_ttl)
            missing = [claim for claim in claims if claim not in extended]
            # Its row is locked if the claim stands nevertheless.
            unknown = await self._repo.current_claims(missing) if missing else set()
        except PulseError:
            self._spare(claims)
            self._beats_failed()
            raise
        if not missing:
            return [_Lease.EXTENDED] * len(claims)
        self._spare(unknown)
        return [
            _Lease.EXTENDED if claim in extended else _Lease.UNKNOWN if claim in unknown else _Lease.LOST
            for claim in claims
        ]

    @contextmanager
    def _spared_if_slow(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Spare the workers while their beats wait for a statement, or in one that takes long.

        By the time that it fails, another server may have reaped the jobs.
        """
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def spare() -> None:
            nonlocal timer
            self._spare(claims)
            timer = loop.call_later(self._lease_ttl.total_seconds() / 4, spare)

        timer = loop.call_later(self._beat_slow, spare)
        try:
            yield
        finally:
            timer.cancel()

    def _spare(self, claims: Iterable[Claim]) -> None:
        worker_ids = {claim.worker_id for claim in claims if claim.worker_id is not None}
        if worker_ids:
            self._spared_workers.spare(worker_ids)


def _taken(job: NewJob, taker: Taker) -> ClaimedJob:
    """The job as it goes to the worker that took it on its way in."""
    return ClaimedJob(
        job.id,
        job.topic,
        job.payload,
        1,
        job.priority,
        job.max_attempts,
        job.metadata,
        job.idempotency_key,
        taker.worker_id,
        # As claim_batch has it: a last attempt is confirmed before it starts.
        taker.confirms and job.max_attempts == 1,
        0.0,
    )
