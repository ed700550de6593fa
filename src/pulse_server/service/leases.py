"""Leases: heartbeats extend them, up to the time limits of attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import Enum, auto

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import GroupCommit
from pulse_server.dispatch.claims import SparedWorkers
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import NO_PROGRESS, Beat, BeatAnswer, longest_confirmation
from pulse_server.jobs.rules import Claim, ProgressReport
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.service import TopicRules

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
            self._extend, slots=1, limit=HEARTBEAT_BATCH, size_of=_size
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


def _size(beat: Claim | Beat) -> int:
    """About how many bytes the beat adds to a statement, beyond its claim."""
    return beat.progress.size if isinstance(beat, Beat) and beat.progress is not None else 0
