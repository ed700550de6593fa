"""Attempts: reports, leases, and the watchdog."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, TypeAlias

from pulse_server.base.bounds import error_group
from pulse_server.base.errors import JobLocked, JobNotFound, PulseError
from pulse_server.base.ids import PageKey
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.sharing import GroupCommit
from pulse_server.database.connections import Database
from pulse_server.dispatch.claims import SparedWorkers
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.leases import PostgresLeaseCheckRepo
from pulse_server.jobs.reports import (
    NO_COMPLETIONS,
    NO_PROGRESS,
    Beat,
    BeatAnswer,
    Completions,
    FailureReport,
    Report,
    ResultReport,
    SnoozeReport,
    SuspendReport,
    claim_of,
    is_repeat,
    longest_confirmation,
    refusal,
    stands,
)
from pulse_server.jobs.rules import Claim, Ended, Job, JobStatus, ProgressReport, Reaped
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.settings import Settings
from pulse_server.topics.service import TopicRules

# ---------------------------------------------------------------- reports
# Reports: record the results of attempts, many requests in one statement.

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
REPORT_BATCH = 1000
# Two statements in flight keep the database busy while this process prepares the next batch.
REPORT_SLOTS = 2

Suspend: TypeAlias = Callable[[Sequence[SuspendReport]], Awaitable[Mapping[Claim, Ended]]]

log = logging.getLogger(__name__)


class Reports:
    def __init__(
        self,
        repo: PostgresJobRepo,
        publisher: Publisher,
        suspend: Suspend | None = None,
        *,
        grouping: type[GroupCommit[Any, Any]] = GroupCommit,
    ) -> None:
        """`suspend` lets jobs wait, and publishes it. Without it there are no such reports."""
        self._repo = repo
        self._suspend = suspend
        self._publisher = publisher
        self._commits: GroupCommit[Report, PulseError | None] = grouping(
            self._take, slots=REPORT_SLOTS, limit=REPORT_BATCH, size_of=_size_of_report
        )

    async def report(self, reports: Sequence[Report]) -> Sequence[PulseError | None]:
        """Record the results and answer for each, in order: None if it counts, else why it does not.

        A repeat of a report that was taken before counts.
        """
        return await self._commits.add_all(reports)

    async def holder(self, job_id: str) -> str | None:
        """The worker that holds the job, or that had it last; None if no worker had it."""
        job = (await self._repo.look_up_jobs([job_id])).get(job_id)
        if job is None:
            return None
        return job.locked_by or job.finished_by or (job.history[-1].worker_id if job.history else None)

    async def _take(self, reports: Sequence[Report]) -> list[PulseError | None]:
        self._publisher.batch_sent("report", len(reports))
        plain = [report for report in reports if isinstance(report, Claim)]
        others = [] if len(plain) == len(reports) else [one for one in reports if not isinstance(one, Claim)]
        completed = await self._complete(plain, [one for one in others if isinstance(one, ResultReport)])
        failures = _failures(others)
        failed = await self._repo.fail_jobs(failures) if failures else {}
        # One may be in a batch twice.
        counted = {report.claim: report for report in failures if report.claim in failed}
        ended = [(report, failed[claim]) for claim, report in counted.items()]
        self._publisher.failed(ended)
        for report, end in ended:
            _log_reports(report.claim, end)
        waiting = await self._let_wait(others)
        if len(completed) + len(failed) + len(waiting) == len(reports):
            return [None] * len(reports)
        counted_claims = {*failed, *waiting}
        rest = {
            report: claim.job_id
            for report in reports
            if (claim := claim_of(report))
            not in (completed if isinstance(report, Claim | ResultReport) else counted_claims)
        }
        jobs = await self._repo.look_up_jobs(set(rest.values())) if rest else {}
        return [_judge(report, jobs) if report in rest else None for report in reports]

    async def _complete(self, plain: Sequence[Claim], with_results: Sequence[ResultReport]) -> Completions:
        if not plain and not with_results:
            return NO_COMPLETIONS
        claims = [*plain, *(report.claim for report in with_results)]
        # Of several reports on one claim, the first is stored.
        results = {report.claim: report.result for report in reversed(with_results)}
        completed = await self._repo.complete_jobs(claims, results)
        self._publisher.completed(completed)
        return completed

    async def _let_wait(self, reports: Sequence[Report]) -> Mapping[Claim, Ended]:
        """Snooze and suspend jobs. Returns the claims that counted."""
        waiting: dict[Claim, Ended] = {}
        if snoozes := [report for report in reports if isinstance(report, SnoozeReport)]:
            waiting |= await self._repo.snooze_jobs(snoozes)
            self._publisher.snoozed(waiting)
        suspensions = [report for report in reports if isinstance(report, SuspendReport)]
        if suspensions and self._suspend is not None:
            waiting |= await self._suspend(suspensions)
        for claim, end in waiting.items():
            _log_reports(claim, end)
        return waiting


def _failures(reports: Sequence[Report]) -> list[FailureReport]:
    return [
        report._replace(error_group=error_group(report.error))
        for report in reports
        if isinstance(report, FailureReport)
    ]


def _log_reports(claim: Claim, ended: Ended) -> None:
    # Without the error: handlers put pieces of their payloads into it. It is kept with the job.
    facts = {
        "job_id": claim.job_id,
        "topic": ended.topic,
        "worker_id": claim.worker_id,
        "attempt": claim.attempt,
    }
    if ended.status is JobStatus.DEAD_LETTERED:
        log.warning("job_dead_lettered", extra=facts)
    else:
        log.debug("attempt_failed", extra=facts)


def _judge(report: Report, jobs: dict[str, Job]) -> PulseError | None:
    claim = claim_of(report)
    job = jobs.get(claim.job_id)
    if job is None:
        return JobNotFound(claim.job_id)
    if stands(claim, job):
        return JobLocked(job.id)  # it would have counted
    return None if is_repeat(report, job) else refusal(report, job)


def _size_of_report(report: Report) -> int:
    """About how many bytes the report adds to a statement."""
    # Test for a claim first: nearly all reports are claims, and a match would test it last.
    if isinstance(report, Claim):
        return 0
    if isinstance(report, ResultReport):
        return len(report.result)
    if isinstance(report, SuspendReport):
        text = report.step
    else:
        text = report.error if isinstance(report, FailureReport) else report.reason
    return len(text) + (0 if report.progress is None else report.progress.size)


# ---------------------------------------------------------------- leases
# Leases: heartbeats extend them, up to the time limits of attempts.

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays short.
HEARTBEAT_BATCH = 5000
# A statement with beats that takes longer may fail: its workers are spared from here on (docs/adr/0042). The
# least of this and a tenth of a lease.
BEAT_SLOW = timedelta(seconds=1)


class _Lease(Enum):
    EXTENDED = auto()
    LOST = auto()
    UNKNOWN = auto()
    MISSING = auto()


class Leases:
    """`failed` is called when a statement with heartbeats failed: leases end though their workers live."""

    def __init__(
        self,
        repo: PostgresJobRepo,
        publisher: Publisher,
        spared_workers: SparedWorkers,
        rules: TopicRules,
        lease_ttl: timedelta,
        *,
        failed: Callable[[], object],
    ) -> None:
        self._repo = repo
        self._publisher = publisher
        self._spared_workers = spared_workers
        self._rules = rules
        self._lease_ttl = lease_ttl
        self._failed = failed
        self._slow = min(BEAT_SLOW, lease_ttl / 10).total_seconds()
        self._commits: GroupCommit[Claim | Beat, _Lease] = GroupCommit(
            self._extend, slots=1, limit=HEARTBEAT_BATCH, size_of=_size_of_lease
        )
        # Apart from the heartbeats: those without a missing claim do not wait for a second statement.
        self._looks: GroupCommit[Claim, _Lease] = GroupCommit(self._look, slots=1, limit=HEARTBEAT_BATCH)

    async def extend(
        self,
        claims: Sequence[Claim],
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
        start_within: timedelta | None = None,
    ) -> BeatAnswer:
        """Extend the leases. Returns the lost claims, and the claims that could not be extended.

        Stores the jobs' progress in the same statement. With `start_within`, the handlers start
        when this returns, if it returns in time. A claim that was extended too late is unknown.
        """
        beats: Sequence[Claim | Beat] = claims
        if progress or start_within is not None:
            start_by = None
            if start_within is not None:
                within = min(start_within, longest_confirmation(self._lease_ttl))
                start_by = lease_clock() + within.total_seconds()
            beats = [Beat(claim, progress.get(claim), start_by) for claim in claims]
        with self._spared_if_slow(claims):
            leases = await self._commits.add_all(beats)
            missing = [claim for claim, lease in zip(claims, leases, strict=True) if lease is _Lease.MISSING]
            looked_up = dict(zip(missing, await self._looks.add_all(missing), strict=True))
        answer = BeatAnswer([], [])
        for claim, found in zip(claims, leases, strict=True):
            lease = looked_up.get(claim, found)
            if lease is not _Lease.EXTENDED:
                (answer.lost if lease is _Lease.LOST else answer.unknown).append(claim)
        return answer

    async def _extend(self, beats: Sequence[Claim | Beat]) -> list[_Lease]:
        self._publisher.batch_sent("heartbeat", len(beats))
        claims = [beat if isinstance(beat, Claim) else beat.claim for beat in beats]
        progress, start_by = _contents(beats)
        now = lease_clock()
        confirm_within = {claim: timedelta(seconds=moment - now) for claim, moment in start_by.items()}
        time_limits = self._rules.time_limits
        with self._failures_noticed(claims):
            extended, over, late, stored, confirmed_until = await self._repo.extend_leases(
                claims, self._lease_ttl, time_limits, progress, confirm_within
            )
        self._publisher.progressed(stored)
        too_late = await self._take_back_starts(start_by, confirmed_until) if confirmed_until else set()
        if len(extended) == len(claims) and not too_late:
            return [_Lease.EXTENDED] * len(claims)
        found = dict.fromkeys(extended, _Lease.EXTENDED)
        found |= dict.fromkeys((*late, *too_late), _Lease.UNKNOWN) | dict.fromkeys(over, _Lease.LOST)
        return [found.get(claim, _Lease.MISSING) for claim in claims]

    async def _take_back_starts(
        self, start_by: Mapping[Claim, float], confirmed_until: Mapping[Claim, datetime]
    ) -> set[Claim]:
        """Stop counting attempts whose confirmation was committed too late. Returns their claims.

        Their workers start nothing. If one dies before it confirms again, the attempt would be lost.
        Part of the commit: it also runs if the worker has given up its call.
        """
        now = lease_clock()
        too_late = {claim: until for claim, until in confirmed_until.items() if now >= start_by[claim]}
        if too_late:
            with self._failures_noticed(list(too_late)):
                await self._repo.take_back_starts(too_late)
        return set(too_late)

    async def _look(self, claims: Sequence[Claim]) -> list[_Lease]:
        """Return UNKNOWN for a claim that stands, as another session has locked its row; else LOST."""
        with self._failures_noticed(claims):
            locked = await self._repo.current_claims(claims)
        self._spared_workers.spare_holders(locked)
        return [_Lease.UNKNOWN if claim in locked else _Lease.LOST for claim in claims]

    @contextmanager
    def _failures_noticed(self, claims: Sequence[Claim]) -> Iterator[None]:
        try:
            yield
        except PulseError:
            self._spared_workers.spare_holders(claims)
            self._failed()
            raise

    @contextmanager
    def _spared_if_slow(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Spare the workers while their heartbeats wait for a statement, or for a slow one to end.

        By the time that it fails, another server may have reaped the jobs.
        """
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def spare() -> None:
            nonlocal timer
            self._spared_workers.spare_holders(claims)
            timer = loop.call_later(self._lease_ttl.total_seconds() / 4, spare)

        timer = loop.call_later(self._slow, spare)
        try:
            yield
        finally:
            timer.cancel()


def _contents(beats: Sequence[Claim | Beat]) -> tuple[dict[Claim, ProgressReport], dict[Claim, float]]:
    """Return the reported progress, and the time of the lease clock to start by, by claim."""
    progress: dict[Claim, ProgressReport] = {}
    start_by: dict[Claim, float] = {}
    for beat in beats:
        if isinstance(beat, Beat):
            if beat.progress is not None:
                progress[beat.claim] = beat.progress
            if beat.start_by is not None:  # the last one counts, if the worker has repeated its call
                start_by[beat.claim] = beat.start_by
    return progress, start_by


def _size_of_lease(beat: Claim | Beat) -> int:
    """About how many bytes the beat adds to a statement, beyond its claim."""
    return beat.progress.size if isinstance(beat, Beat) and beat.progress is not None else 0


# ---------------------------------------------------------------- watchdog
# Reaps jobs whose leases have expired.
#
# An expired lease shows that no heartbeat was stored, not why. Longer leases would pay for the rare outage
# with each crash, and rows do not distinguish living workers from dead ones. ADR-0010,
# docs/figures.md#the-caution-of-the-watchdog

# In lease TTLs: how long a database that answers, but late or with failures in between, delays reaping.
MOST_CAUTION = 3
# In lease TTLs: how long ago the last failed tick must be by then. Within that time each living worker has
# sent a heartbeat: it repeats one that failed within a second, or half a heartbeat interval.
LEAST_CALM = 0.5
# Jobs per statement. The watchdog continues at once while it finds full batches.
REAP_BATCH = 1000


class Watchdog:
    """Reaps expired leases, but never before workers had a whole lease TTL to send a heartbeat.

    After the database was away, or this process was frozen or not yet started, every lease looks expired
    though its worker is fine: no heartbeat could be stored. So it reaps only after one lease TTL in which the
    database answered every tick, in time, and stored every heartbeat. After a start or a freeze the time
    counts in which other servers reached the database. While the database answers late, or fails again and
    again, it reaps after `MOST_CAUTION`, of the time in which the database answers. It never reaps before the
    workers are recorded whose heartbeats this server could not store.
    ADR-0010, docs/figures.md#the-caution-of-the-watchdog
    """

    def __init__(
        self,
        repo: PostgresJobRepo,
        publisher: Publisher,
        spared_workers: SparedWorkers,
        *,
        interval: timedelta,
        lease_ttl: timedelta,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._repo = repo
        self._publisher = publisher
        self._spared_workers = spared_workers
        self._interval = interval
        self._lease_ttl = lease_ttl
        self._clock = clock
        self._steady_since: float | None = None
        # Since when no tick has failed.
        self._answering_since: float | None = None
        # For how long the database has answered since the last reap.
        self._answered = timedelta()
        self._counts_others = True
        self._ended_at: float | None = None
        self.loop = Loop("watchdog", self.tick, interval)

    async def tick(self) -> None:
        asked_at = self._clock()
        if self._ended_at is None or asked_at - self._ended_at > 2 * self._interval.total_seconds() + 1:
            self.wait_again()  # this process has just started, or was frozen
            self._answering_since = None
            self._counts_others = True
            self._ended_at = None
        try:
            database_now = await self._repo.database_now()
            answered_at = self._clock()
            if self._ended_at is not None:
                self._answered += timedelta(seconds=answered_at - self._ended_at)
            took = timedelta(seconds=answered_at - asked_at)
            if await self._may_reap(took):
                # A full disk may have room since this moment: the reap must not be the first to use it.
                await self._spared_workers.record()
                await self._reap(database_now - took)
                self._answered = timedelta()
        except PulseError:
            self.wait_again()
            self._answering_since = None
            raise
        finally:
            self._ended_at = self._clock()
            if self._is_late(timedelta(seconds=self._ended_at - asked_at)):
                self._steady_since = None

    def wait_again(self) -> None:
        """Wait for a whole lease TTL before the next reap, counted from the next tick.

        Repeated again and again, this delays a reap by `MOST_CAUTION`.
        """
        self._steady_since = None
        self._counts_others = False

    async def _may_reap(self, took: timedelta) -> bool:
        now = self._clock()
        if self._answering_since is None:
            self._answering_since = now
        if self._steady_since is None or self._is_late(took):
            self._steady_since = now
        steady_for = timedelta(seconds=now - self._steady_since)
        if self._counts_others and steady_for < self._lease_ttl:
            steady_for = await self._repo.steady_for(steady_for)
        if self._steady_since is None:  # a heartbeat could not be stored meanwhile
            return False
        if steady_for >= self._lease_ttl:
            return True
        calm_for = timedelta(seconds=now - self._answering_since)
        return calm_for >= LEAST_CALM * self._lease_ttl and self._answered >= MOST_CAUTION * self._lease_ttl

    def _is_late(self, took: timedelta) -> bool:
        """Whether the database or this process may have stood still for too long."""
        return took > self._lease_ttl / 4

    async def _reap(self, expired_before: datetime) -> None:
        while True:
            reaped = await self._repo.reap_expired(REAP_BATCH, expired_before)
            for entry in reaped:
                _log_expired(entry)
            self._publisher.reaped(reaped)
            if len(reaped) < REAP_BATCH:
                return


def _log_expired(entry: Reaped) -> None:
    log.warning(
        "lease_expired",
        extra={
            "job_id": entry.claim.job_id,
            "topic": entry.topic,
            "worker_id": entry.claim.worker_id,
            "attempt": entry.claim.attempt,
            "status": entry.status.value,
            "delivered": entry.delivered,
            "timed_out": entry.timed_out,
        },
    )


# ---------------------------------------------------------------- lease keeping
# Leases in a server: heartbeats that extend them, and the loops that find expired leases. ADR-0056

# A claim is two seconds old when it is settled: the checks of about three seconds of claims are unsettled.
SETTLE_INTERVAL = timedelta(seconds=1)
# Lease checks per statement. Each claim has one, of up to a thousand jobs; so has each hand-over.
SETTLE_BATCH = 500
# A tick looks at checks that became due since the last tick, and a little further back: a claim may
# commit late. While a transaction is held open, a full look walks all checks settled since.
SETTLE_MARGIN = timedelta(seconds=10)
# How often to look at all checks, since an earlier tick skips checks that another session has
# locked; and the largest share of the time for it.
SETTLE_EVERYTHING = timedelta(minutes=1)
SETTLE_EVERYTHING_SHARE = 0.05

# Jobs per statement: some 10 ms.
SWEEP_BATCH = 5000
# Time between two passes over the unfinished jobs: a job whose check was lost waits this long.
SWEEP_INTERVAL = timedelta(minutes=10)
# The share of one connection's time during a pass.
SWEEP_SHARE = 0.1


class Settler:
    """Settles claims soon after they were made. Lease checks then name few jobs: jobs claimed in
    the last seconds, and jobs that run longer."""

    def __init__(
        self,
        repo: PostgresLeaseCheckRepo,
        *,
        interval: timedelta = SETTLE_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repo = repo
        self._clock = clock
        self._settled_at: float | None = None
        self._all_next_at = 0.0
        self.loop = Loop("settler", self.tick, interval)

    async def tick(self) -> None:
        began = self._clock()
        looking_back = None
        if self._settled_at is not None and began < self._all_next_at:
            looking_back = timedelta(seconds=began - self._settled_at) + SETTLE_MARGIN
        while await self._repo.settle_claims(SETTLE_BATCH, looking_back) == SETTLE_BATCH:
            pass
        self._settled_at = began
        if looking_back is None:
            took = self._clock() - began
            self._all_next_at = began + max(SETTLE_EVERYTHING.total_seconds(), took / SETTLE_EVERYTHING_SHARE)


class LeaseSweep:
    """Finds running jobs that no lease check names: the table was truncated, or restored from elsewhere.

    Walks all unfinished jobs in the order of their submission, one statement per tick.
    """

    def __init__(self, repo: PostgresLeaseCheckRepo, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._repo = repo
        self._clock = clock
        self._reached: PageKey | None = None
        self.loop = Loop("lease sweep", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> timedelta:
        """Look at one batch. Returns how long to rest: shortly within a pass, an interval after it."""
        began = self._clock()
        found = await self._repo.restore_lease_checks(after=self._reached, limit=SWEEP_BATCH)
        if found.restored:
            log.warning("lease_checks_restored", extra={"jobs": found.restored})
        self._reached = found.reached
        if found.looked_at < SWEEP_BATCH:
            self._reached = None
            return SWEEP_INTERVAL
        return timedelta(seconds=self._clock() - began) * (1 / SWEEP_SHARE - 1)


class LeaseKeeping:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        repo: PostgresJobRepo,
        publisher: Publisher,
        spared_workers: SparedWorkers,
    ) -> None:
        self._repo = repo
        self._publisher = publisher
        self._lease_ttl = settings.lease_ttl
        self._spared_workers = spared_workers
        self.watchdog = Watchdog(
            repo,
            publisher,
            spared_workers,
            interval=settings.watchdog_interval,
            lease_ttl=settings.lease_ttl,
        )
        lease_checks = PostgresLeaseCheckRepo(database)
        self._settler = Settler(lease_checks)
        self._sweep = LeaseSweep(lease_checks)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.watchdog.loop, self._settler.loop, self._sweep.loop)

    def leases(self, rules: TopicRules) -> Leases:
        """Make the service that extends leases. The rules have the time limits of attempts."""
        return Leases(
            self._repo,
            self._publisher,
            self._spared_workers,
            rules,
            self._lease_ttl,
            # Full disks and locks can keep heartbeats out of a database that answers each tick.
            failed=self.watchdog.wait_again,
        )
