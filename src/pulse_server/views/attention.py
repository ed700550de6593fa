"""What needs an operator's attention in the whole queue, by harm: the rules, and a sentence for each finding.

Dead letters are grouped by error. Counts are cached: concurrent callers share one query.
docs/figures.md#dead-letters
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pulse_server.base import bounds
from pulse_server.base.ids import fitting
from pulse_server.base.loops import in_turns, lease_clock
from pulse_server.base.sharing import Sample, Samples
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.dispatch.rules import ConnectedWorker, Pause
from pulse_server.dispatch.service import Gate
from pulse_server.jobs.reads import job_from_row
from pulse_server.jobs.rules import Job
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.topics.rules import Limits
from pulse_server.topics.store import PostgresLimitRepo
from pulse_server.views.gates import cut, ended, percent, plural, span
from pulse_server.views.servers import Servers, WorkerReport
from pulse_server.views.statistics import TopicDepth, TopicRates, Topics
from pulse_server.views.vitals import LongRuns, Space, VitalsQueries
from pulse_server.work.jobs import job_weight

# Harm is a weighted number of jobs per minute, over the last five minutes. A dead letter stays lost until
# an operator acts. A failed attempt is repeated. A late job only runs later.
DEAD_LETTER_WEIGHT = 100
FAILURE_WEIGHT = 10
LATELY_MINUTES = 5
# A free worker claims a job within milliseconds. A longer wait means too few workers.
OLD_READY = timedelta(minutes=2)
# More than a burst: the queue does not catch up.
VERY_OLD_READY = timedelta(minutes=15)
# A restarted or disconnected worker is back within seconds.
WORKERS_AWAY = timedelta(seconds=15)
FAILING = 0.10
MOSTLY_FAILING = 0.50
# With fewer attempts, two failures would raise an alarm.
ENOUGH_ATTEMPTS = 20
# Every server looks for due schedules each second: ten rounds were missed.
SCHEDULER_LATE = timedelta(seconds=10)
SCHEDULER_VERY_LATE = timedelta(minutes=1)
# One lane has this share of the waiting jobs, and at least so many.
FLOOD_SHARE = 0.8
FLOOD_JOBS = 1000
# A process that took over from one with too much memory is a finding for this long, and for as long as it
# lives if there are so many on its host.
TAKEN_OVER_LATELY = timedelta(minutes=15)
MANY_TAKEN_OVER = 3


_NO_RATES = TopicRates()


@dataclass(frozen=True, slots=True)
class FullestLane:
    """The lane of a topic that has the most waiting jobs, and the number of all of the topic."""

    lane: str
    jobs: int
    total: int
    has_more: bool = False
    """The topic has more waiting jobs than were counted."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    depth: TopicDepth
    rates: TopicRates = _NO_RATES
    workers: int = 0
    """Those that take jobs."""
    quiet: int = 0
    """Those that take none, by order of an operator."""
    is_dispatched: bool = True
    """False: everything is paused."""
    pause: Pause | None = None
    limits: Limits | None = None
    fullest_lane: FullestLane | None = None
    long_runs: LongRuns | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What needs attention about a topic, a worker, or the whole queue if both are empty."""

    kind: str
    """The code of its most harmful part."""
    is_urgent: bool
    sentence: str
    """About a topic or a worker: the rest of the sentence that begins with its name."""
    harm: float = 0.0
    topic: str = ""
    worker_id: str = ""
    jobs: int = 0
    """Of two findings of equal harm, the one with more jobs comes first."""

    @property
    def rank(self) -> tuple[object, ...]:
        """Trouble of the whole queue comes first, then the most harm."""
        is_general = (self.is_urgent or self.kind == "paused") and not (self.topic or self.worker_id)
        return (not is_general, -self.harm, not self.is_urgent, -self.jobs, self.topic, self.worker_id)


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    is_urgent: bool
    clause: str
    harm: float = 0.0
    jobs: int = 0


def about_queue(
    ready: int, pause: Pause | None, schedules_late: timedelta, full_since: datetime | None, now: datetime
) -> Iterator[Finding]:
    """Yield findings about the whole queue."""
    if full_since is not None:
        full = span(now - full_since)
        yield Finding("full", True, f"The database's disk is full, for {full}: nothing can be stored.")
    if pause is not None:
        yield Finding("paused", False, f"Everything {_paused(pause, ready, now)}.")
    if schedules_late >= SCHEDULER_LATE:
        sentence = f"The scheduler is late: a schedule has been due for {span(schedules_late)}."
        yield Finding("scheduler", schedules_late >= SCHEDULER_VERY_LATE, sentence)


def about_topic(facts: TopicFacts, now: datetime) -> Finding | None:
    """Return all that needs attention about a topic as one finding, the most harmful part first."""
    kinds = (_dead_letters, _failures, _waiting, _runs, _flood)
    parts = sorted(
        (part for kind in kinds for part in kind(facts, now)),
        key=lambda part: (-part.harm, not part.is_urgent),
    )
    if not parts:
        return None
    return Finding(
        parts[0].kind,
        any(part.is_urgent for part in parts),
        f"{'; '.join(part.clause for part in parts)}.",
        sum(part.harm for part in parts),
        facts.depth.topic,
        jobs=max(part.jobs for part in parts),
    )


def about_workers(workers: Iterable[WorkerReport], now: datetime) -> Iterator[Finding]:
    """Yield workers that hold jobs without a connection, that send no heartbeats, or that took over from a
    process with too much memory."""
    taken_over: dict[str, list[ConnectedWorker]] = defaultdict(list)
    for worker in workers:
        if worker.connection is not None and worker.connection.facts.took_over_for_memory:
            taken_over[worker.connection.facts.host].append(worker.connection)
        jobs, held = worker.holding.jobs, worker.holding.count
        expired = sum(1 for job in jobs if job.lease_until < now)
        if worker.connection is None and held:
            until = max(job.lease_until for job in jobs)
            freed = f"within {span(until - now)}" if until > now else "next: their leases have expired"
            sentence = (
                f"holds {plural(held, 'job')} but is not connected. They are reaped {freed}, "
                "unless it reconnects."
            )
            yield Finding("worker", False, sentence, held / LATELY_MINUTES, worker_id=worker.worker_id)
        elif expired:
            sentence = (
                f"sends no heartbeats: {plural(expired, 'lease')} expired. Other workers will run its jobs."
            )
            yield Finding("silent", False, sentence, expired / LATELY_MINUTES, worker_id=worker.worker_id)
    for of_host in taken_over.values():
        yield from _taken_over(of_host, now)


def _taken_over(of_host: list[ConnectedWorker], now: datetime) -> Iterator[Finding]:
    """One finding for a host: its processes share its memory. Only a killed process does harm."""
    last = max(of_host, key=lambda worker: worker.connected_at)
    age = now - last.connected_at
    if age > TAKEN_OVER_LATELY and len(of_host) < MANY_TAKEN_OVER:
        return
    lately = now - timedelta(minutes=LATELY_MINUTES)
    killed = sum(1 for one in of_host if one.facts.took_over_from_a_killed and one.connected_at >= lately)
    others = plural(len(of_host) - 1, "other worker of its host", "other workers of its host")
    more = f" So did {others}." if len(of_host) > 1 else ""
    sentence = ended(f"connected {span(age)} ago in place of a process that {cut(last.facts.last_exit)}")
    harm = FAILURE_WEIGHT * killed / LATELY_MINUTES
    yield Finding("memory", False, sentence + more, harm, worker_id=last.worker_id, jobs=killed)


def ordered(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda finding: finding.rank)


def is_late(depth: TopicDepth, now: datetime) -> bool:
    """Whether the oldest ready job of a topic has waited for long."""
    return depth.oldest_ready_at is not None and now - depth.oldest_ready_at >= OLD_READY


# ------------------------------------------------------------ the parts of a topic


def _dead_letters(facts: TopicFacts, _now: datetime) -> Iterator[_Part]:
    lately, hour = facts.rates.lately.dead_lettered, facts.rates.last_hour.dead_lettered
    if lately:
        harm = DEAD_LETTER_WEIGHT * lately / LATELY_MINUTES
        clause = f"dead-lettered {plural(lately, 'job')} in the last {LATELY_MINUTES} min"
        yield _Part("dead", True, clause, harm, lately)
    elif hour:
        yield _Part("dead", False, f"dead-lettered {plural(hour, 'job')} in the last hour", jobs=hour)


def _failures(facts: TopicFacts, _now: datetime) -> Iterator[_Part]:
    lately = facts.rates.lately
    is_recent = lately.completed + lately.failed >= ENOUGH_ATTEMPTS
    counts, when = (lately, f"{LATELY_MINUTES} min") if is_recent else (facts.rates.last_hour, "hour")
    attempts = counts.completed + counts.failed
    if attempts < ENOUGH_ATTEMPTS or counts.failed < FAILING * attempts:
        return
    share = counts.failed / attempts
    yield _Part(
        "failing",
        share >= MOSTLY_FAILING,
        f"fails {percent(share)} of its attempts: {counts.failed:,} of {attempts:,} in the last {when}",
        FAILURE_WEIGHT * lately.failed / LATELY_MINUTES,
        counts.failed,
    )


def _waiting(facts: TopicFacts, now: datetime) -> Iterator[_Part]:
    """A pause or a limit explains waiting jobs. They do no harm: an operator or the code wants it."""
    depth = facts.depth
    if facts.pause is not None:
        yield _Part("paused", False, _paused(facts.pause, depth.ready, now), jobs=depth.ready)
        return
    if not facts.is_dispatched or not depth.ready or depth.oldest_ready_at is None:
        return
    age = now - depth.oldest_ready_at
    # How many jobs have become late per minute. An old backlog that no longer grows weighs little.
    harm = depth.ready / max(LATELY_MINUTES, age / timedelta(minutes=1))
    waited = (
        f"its oldest ready job has waited {span(age)}, and {plural(depth.ready, 'job is', 'jobs are')} ready"
    )
    if not facts.workers:
        if age >= WORKERS_AWAY:
            quiet = f" but {plural(facts.quiet, 'quiet one')}" if facts.quiet else ""
            clause = f"has {plural(depth.ready, 'ready job')} and no worker{quiet}, for {span(age)}"
            yield _Part("starving", True, clause, harm, depth.ready)
    elif not is_late(depth, now):
        return
    elif facts.limits is not None and (reason := facts.limits.why_full):
        yield _Part("limited", False, f"{reason}: {waited}", jobs=depth.ready)
    else:
        yield _Part("old", age >= VERY_OLD_READY, f"is falling behind: {waited}", harm, depth.ready)


def _runs(facts: TopicFacts, _now: datetime) -> Iterator[_Part]:
    runs = facts.long_runs
    if runs is None or not runs.count:
        return
    clause = (
        f"has {plural(runs.count, 'run')} longer than usual, up to {span(runs.longest)}: "
        f"99 of 100 take at most {span(runs.usual)}"
    )
    minutes = runs.longest / timedelta(minutes=1)
    yield _Part("long", False, clause, runs.count / max(LATELY_MINUTES, minutes), runs.count)


def _flood(facts: TopicFacts, _now: datetime) -> Iterator[_Part]:
    lane = facts.fullest_lane
    if lane is not None and lane.jobs >= max(FLOOD_JOBS, FLOOD_SHARE * lane.total):
        first = "the first " if lane.has_more else ""
        total = plural(lane.total, "waiting job")
        clause = f"has {lane.jobs:,} of {first}{total} in the lane {lane.lane}"
        yield _Part("flood", False, clause, jobs=lane.jobs)


def _paused(pause: Pause, ready: int, now: datetime) -> str:
    by = f" by {pause.by}" if pause.by else ""
    why = f" ({pause.reason})" if pause.reason else ""
    waits = plural(ready, "ready job waits", "ready jobs wait") if ready else "no ready jobs wait"
    return f"has been paused for {span(now - pause.since)}{by}{why}; {waits}"


# Late topics whose limits are read, the longest waiting first.
LIMITS_READ = 100
# Late topics whose lanes are counted, and how many waiting jobs of each: some 20 ms in an index.
LANES_COUNTED = 5
LANE_JOBS_COUNTED = 100_000

_SQL = statements("views/attention.sql")


class Attention:
    """Cached: concurrent callers share one look at the database."""

    def __init__(
        self,
        database: Database,
        topics: Topics,
        servers: Servers,
        gate: Gate,
        limits: PostgresLimitRepo,
        schedules: PostgresScheduleRepo,
        space: Space,
    ) -> None:
        self._database = database
        self.topics = topics
        self._servers = servers
        self._gate = gate
        self._limits = limits
        self._schedules = schedules
        self._space = space
        self._sample = Sample(self._look, to_its_end=True)

    async def findings(self) -> tuple[list[Finding], datetime]:
        """Return all findings, the most harmful first, and when they were found."""
        return await self._sample.get()

    async def _look(self) -> tuple[list[Finding], datetime]:
        sample = await self.topics.sample()
        # Jobs, pauses and leases have times of the database's clock.
        state, now = self._gate.state, self._servers.now()
        workers = everyone = await self._servers.workers_by_topic()
        if state.workers:
            workers = await self._servers.workers_by_topic(without=state.workers)
        late = sorted(
            (depth.oldest_ready_at or now, name)
            for name in state.limited
            if (depth := sample.depths.get(name)) is not None and is_late(depth, now)
        )
        names = [name for _, name in late[:LIMITS_READ]]
        limits = {
            found.topic: found for found in await self._limits.list_limits(limit=LIMITS_READ, topics=names)
        }
        lanes = await self.fullest_lanes([name for name in limits if limits[name].is_laned])
        runs = await VitalsQueries(self._database).long_runs()
        status = await self._schedules.scheduler_status()
        found = list(
            about_queue(sample.depth.ready, state.everything, status.late, self._space.full_since, now)
        )
        found += about_workers(await self._servers.workers(), now)
        async for some in in_turns(list({*sample.depths, *sample.rates, *state.topics})):
            for name in some:
                facts = TopicFacts(
                    sample.depths.get(name, TopicDepth(name)),
                    sample.rates.get(name, TopicRates()),
                    workers[name],
                    everyone[name] - workers[name],
                    state.everything is None,
                    state.topics.get(name),
                    limits.get(name),
                    lanes.get(name),
                    runs.get(name),
                )
                if (finding := about_topic(facts, now)) is not None:
                    found.append(finding)
        return ordered(found), now

    async def fullest_lanes(self, topics: Sequence[str]) -> dict[str, FullestLane]:
        """The lane with the most waiting jobs, by topic."""
        if not topics:
            return {}
        rows = await self._database.watch.fetch(
            "fullest_lanes", _SQL["fullest_lanes"], list(topics[:LANES_COUNTED]), LANE_JOBS_COUNTED
        )
        return {
            topic: FullestLane(lane, jobs, total, has_more=total >= LANE_JOBS_COUNTED)
            for topic, lane, jobs, total in rows
        }


# Cached counts, each of one topic or of all topics. One takes PAGE_BYTES at the most.
DEAD_LETTER_COUNTS_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one topic with the same error."""

    count: int
    first_at: datetime
    last_at: datetime
    sample: Job
    """The latest one, without payload and history. It has the topic and the group."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """The groups with the latest dead letters first, and how many are left out."""

    groups: tuple[DeadLetterGroup, ...]
    left_out: int
    counted_at: datetime


class DeadLetters:
    def __init__(self, database: Database, *, clock: Callable[[], float] = lease_clock) -> None:
        self._database = database
        self._samples = Samples(self._count, DEAD_LETTER_COUNTS_REMEMBERED, clock)

    async def groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """Return the groups of the topic, or of all topics, by their newest job; as many as fit."""
        return _first(await self._samples.get(topic), limit)

    async def _count(self, topic: str | None) -> DeadLetterGroups:
        counted = await self.list_dead_letter_groups(topic, bounds.MAX_PAGE_SIZE)
        # Keep only groups that fit into an answer.
        return _first(counted, fitting(job_weight(group.sample) for group in counted.groups))

    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """Count anew, on the connection of the overview: it must not delay a claim or a list."""
        rows = await self._database.watch.fetch(
            "list_dead_letter_groups", _SQL["list_dead_letter_groups"], topic, limit
        )
        groups = tuple(
            DeadLetterGroup(row["jobs"], row["first_at"], row["last_at"], job_from_row(row)) for row in rows
        )
        total = rows[0]["total"] if rows else 0
        return DeadLetterGroups(groups, total - len(groups), datetime.now(UTC))


def _first(counted: DeadLetterGroups, count: int) -> DeadLetterGroups:
    left_out = counted.left_out + max(len(counted.groups) - count, 0)
    return DeadLetterGroups(counted.groups[:count], left_out, counted.counted_at)
