"""Vitals: gauges of the queue and its database, sampled in the background. A scrape makes no query.

`Horizon` watches for old snapshots that keep dead rows, and logs a warning once one has lasted too long. A
queue's table suffers first: claimed jobs leave dead entries at the head of the claim index. As long as an old
snapshot may see the entries, each claim has to step over all of them.

`Space` watches whether the database has disk space, and logs when it has none. Without space, submits and
reports are refused one by one. A probe writes a temporary file, so that the end is noticed too, and a server
without callers knows of it. The server stays ready: reads, heartbeats and running jobs continue, and callers
get a sentence instead of no server.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic

from pulse_server.base import tuning
from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import MOST_TOPICS, OTHER_TOPICS, Gauge, Labels, Metrics, latency
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements

# Shorter runs are never long: a topic of milliseconds may have a slow moment.
SHORTEST_LONG_RUN = timedelta(minutes=1)
# Longer than usual: this many times the run time that 99 of 100 runs of the last day did not exceed.
LONGER = 3
# With fewer runs in the last day, nothing is usual yet.
ENOUGH_RUNS = 100
# Topics to look at, those with the longest runs first. Each takes some 4 ms.
MOST_TOPICS_LOOKED_AT = 20

_SQL = statements("views/vitals.sql")


@dataclass(frozen=True, slots=True)
class LongRuns:
    """The runs of a topic that take longer than usual now."""

    count: int
    longest: timedelta
    usual: timedelta
    """99 of 100 runs of the last day took at most this."""


log = logging.getLogger(__name__)


class HolderKind(StrEnum):
    SESSION = "session"
    PREPARED = "prepared transaction"
    STANDBY = "standby"
    SLOT = "replication slot"


@dataclass(frozen=True, slots=True)
class Holder:
    """The oldest holder of dead rows, as the database reports it.

    A role without the right to see sessions of other roles gets them without `state` and `seconds`.
    """

    kind: HolderKind
    xid: int
    """The transaction from which on no dead row can be removed."""
    transactions: int
    """How many transaction ids were assigned since."""
    dead_rows: int
    pid: int | None
    name: str
    """The name of a slot, or of a prepared transaction."""
    database: str
    """Its database. A transaction that has written holds back every database of the server."""
    application: str
    user: str
    state: str | None
    seconds: float | None
    """How long its transaction has been open, if visible."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal in two samples: it is the same holder, with the same snapshot."""
        return self.kind, self.pid, self.name, self.xid

    @property
    def remedy(self) -> str:
        """How an operator can end the hold."""
        match self.kind:
            case HolderKind.SESSION:
                remedy = f"SELECT pg_terminate_backend({self.pid}) ends it."
                if self.state is None:
                    return f"It is a session of another user, so its state is hidden from pulsed. {remedy}"
                return remedy
            case HolderKind.PREPARED:
                name = self.name.replace("'", "''")
                return f"COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}' ends it."
            case HolderKind.STANDBY:
                return "A query on that standby holds it (hot_standby_feedback): end the query there."
            case HolderKind.SLOT if self.pid is None:
                return (
                    "The slot is not in use. If its standby is gone for good: "
                    f"SELECT pg_drop_replication_slot('{self.name}')."
                )
            case HolderKind.SLOT:
                return "A query on its standby holds it (hot_standby_feedback): end the query there."


@dataclass(slots=True)
class _Hold:
    holder: Holder
    first_seen: float
    seconds: float = 0.0
    """0 at the first look: an old transaction may have a new snapshot."""
    warned_at_seconds: float | None = None


class Horizon:
    """Warns of a holder that is older than `patience`, again whenever it is twice as old, and of its end.

    The state is in memory only: a server that starts looks twice before it warns.
    """

    def __init__(
        self,
        oldest_holder: Callable[[], Awaitable[Holder | None]],
        metrics: Metrics,
        *,
        interval: timedelta,
        patience: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._oldest_holder = oldest_holder
        self._patience = patience.total_seconds()
        self._clock = clock
        self._hold: _Hold | None = None
        self.loop = Loop("horizon", self.tick, interval)
        metrics.oldest_transaction.read = lambda: {(): self._hold.seconds if self._hold else 0.0}
        metrics.horizon.read = lambda: {(): self._hold.holder.transactions if self._hold else 0.0}

    async def tick(self) -> None:
        holder = await self._oldest_holder()
        hold, now = self._hold, self._clock()
        if hold is not None and holder is not None and holder.identity == hold.holder.identity:
            hold.holder = holder
            # Slots have no age, nor have sessions that hide it: their age counts from the first look.
            hold.seconds = now - hold.first_seen if holder.seconds is None else holder.seconds
            self._warn_if_due(hold)
            return
        if hold is not None and hold.warned_at_seconds is not None:
            log.info("vacuum_free_again", extra=_facts(hold))
        self._hold = None if holder is None else _Hold(holder, first_seen=now)

    def _warn_if_due(self, hold: _Hold) -> None:
        warned_at = hold.warned_at_seconds
        if hold.seconds >= (self._patience if warned_at is None else 2 * warned_at):
            hold.warned_at_seconds = hold.seconds
            hint = f"Until it ends no dead row is removed, and claims get slower. {hold.holder.remedy}"
            log.warning("vacuum_held_back", extra={**_facts(hold), "hint": hint})


def _facts(hold: _Hold) -> dict[str, object]:
    holder = hold.holder
    return {
        "holder": holder.kind.value,
        "pid": holder.pid,
        "held_by": holder.name,
        "database": holder.database,
        "application": holder.application,
        "user": holder.user,
        "state": holder.state,
        "held_seconds": round(hold.seconds, 1),
        "transactions": holder.transactions,
        "dead_rows": holder.dead_rows,
    }


# Logged again after this while it lasts.
REMINDER = timedelta(minutes=10)


class Space:
    def __init__(
        self,
        probe: Callable[[], Awaitable[None]],
        metrics: Metrics,
        clock: Callable[[], datetime],
        *,
        interval: timedelta,
    ) -> None:
        """`probe` returns if a file can be written, and raises ResourceExhausted if not."""
        self._probe = probe
        self._clock = clock
        self._refusals = metrics.statements_without_space
        self._refused = 0.0
        self._logged_at: datetime | None = None
        self.full_since: datetime | None = None
        """None: there is space, as far as this server knows."""
        self.loop = Loop("space", self.tick, interval)
        metrics.database_full.read = lambda: {(): float(self.full_since is not None)}

    async def tick(self) -> None:
        """Look for space. Tables may be on another disk than temporary files, so refusals count too."""
        before = self._refused
        try:
            await self._probe()
            has_space = True
        except ResourceExhausted:
            has_space = False
        self._refused = self._refusals.values.get((), 0)
        if has_space and self._refused == before:
            self._note_space()
        else:
            self._note_full(int(self._refused))

    def _note_full(self, refused: int) -> None:
        now = self._clock()
        self.full_since = self.full_since or now
        if self._logged_at is None or now - self._logged_at >= REMINDER:
            self._logged_at = now
            hint = "Nothing can be stored. Free space on the disk of the database; everything then resumes."
            log.warning(
                "database_full",
                extra={"since": self.full_since.isoformat(), "refused": refused, "hint": hint},
            )

    def _note_space(self) -> None:
        if self.full_since is not None:
            log.info("database_has_space", extra={"since": self.full_since.isoformat()})
        self.full_since = self._logged_at = None


_NO_LABELS: Labels = ()


@dataclass(frozen=True, slots=True)
class TopicVitals:
    """The jobs of one topic; without a name, of all topics that are left."""

    topic: str | None
    ready: int
    oldest_seconds: float
    dead_letters: int


@dataclass(frozen=True, slots=True)
class DatabaseVitals:
    """The state of the database: the lag of schedules, dead rows, the size of the jobs table."""

    schedule_lag_seconds: float
    dead_rows: int
    jobs_bytes: int


class VitalsQueries:
    """Each method sends the SQL section of the same name, on separate connections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def jobs_by_topic(self, most_topics: int) -> list[TopicVitals]:
        """The deepest topics, and one nameless entry with the sum of all other topics."""
        return [TopicVitals(*row) for row in await self._fetch("jobs_by_topic", most_topics)]

    async def count_running(self) -> int:
        ((running,),) = await self._fetch("count_running")
        return int(running)

    async def long_runs(self) -> dict[str, LongRuns]:
        """Runs that take longer than usual, by topic."""
        rows = await self._fetch("long_runs", SHORTEST_LONG_RUN, MOST_TOPICS_LOOKED_AT)
        found: dict[str, LongRuns] = {}
        for topic, seconds, buckets in rows:
            usual = latency({int(bucket): runs for bucket, runs in json.loads(buckets).items()})
            count = sum(1 for run in seconds if run > LONGER * usual.p99)
            if usual.count >= ENOUGH_RUNS and count:
                found[topic] = LongRuns(count, timedelta(seconds=max(seconds)), timedelta(seconds=usual.p99))
        return found

    async def write_temporary_file(self) -> None:
        """Return if the disk of the tables has space. Raises ResourceExhausted if it has none."""

        async def work(fetch: Fetch) -> Rows:
            await fetch("SET LOCAL work_mem = '64kB'")
            return await fetch(_SQL["write_temporary_file"])

        await self._database.watch.transact("write_temporary_file", work)

    async def measure_database(self) -> DatabaseVitals:
        (row,) = await self._fetch("measure_database")
        return DatabaseVitals(*row)

    async def oldest_holder(self) -> Holder | None:
        """The session that has blocked vacuum for the longest, if there is one."""
        for kind, *facts in await self._fetch("oldest_holder"):
            return Holder(HolderKind(kind), *facts)
        return None

    async def ping(self) -> None:
        """Return if the database responds."""
        await self._database.probe.fetch("ping", _SQL["ping"])

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)


class Vitals:
    """The gauges of the database, as the last sample found them.

    A deep queue takes longer to sample, and the next sample waits longer: sampling uses at most a fixed share
    of its connection. `pulse_vitals_age_seconds` is the age of the sample.
    """

    def __init__(
        self,
        queries: VitalsQueries,
        metrics: Metrics,
        *,
        interval: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._queries = queries
        self._metrics = metrics
        self._clock = clock
        self._sampled_at: float | None = None
        self._ready: dict[Labels, float] = {}
        self._oldest: dict[Labels, float] = {}
        self._dead_letters: dict[Labels, float] = {}
        self._long_runs: dict[Labels, float] = {}
        self.loop = Loop("vitals", self.tick, interval)
        metrics.ready_jobs.read = lambda: self._ready
        metrics.oldest_ready.read = lambda: self._oldest
        metrics.dead_letters.read = lambda: self._dead_letters
        metrics.long_runs.read = lambda: self._long_runs
        metrics.vitals_age.read = self._age

    async def tick(self) -> None:
        began = self._clock()
        try:
            await self._sample()
            self._sampled_at = self._clock()
        finally:
            # Also after a failure: a sample that takes too long must not be repeated sooner.
            self.loop.rest(tuning.SAMPLE_REST * timedelta(seconds=self._clock() - began))

    async def _sample(self) -> None:
        metrics = self._metrics
        database = await self._queries.measure_database()
        _set(metrics.schedule_lag, database.schedule_lag_seconds)
        _set(metrics.dead_rows, database.dead_rows)
        _set(metrics.jobs_bytes, database.jobs_bytes)
        _set(metrics.running_jobs, await self._queries.count_running())
        await self._sample_topics()
        runs = dict.fromkeys(self._long_runs, 0.0)
        for topic, found in (await self._queries.long_runs()).items():
            label = (metrics.topic(topic, is_worked=True),)
            runs[label] = runs.get(label, 0.0) + found.count
        self._long_runs = runs

    async def _sample_topics(self) -> None:
        # A topic that had jobs once stays, at zero: an alert that waits for an empty queue needs the zero.
        ready, oldest = dict.fromkeys(self._ready, 0.0), dict.fromkeys(self._oldest, 0.0)
        dead = dict.fromkeys(self._dead_letters, 0.0)
        for entry in await self._queries.jobs_by_topic(MOST_TOPICS):
            label = (OTHER_TOPICS if entry.topic is None else self._metrics.topic(entry.topic),)
            ready[label] = ready.get(label, 0.0) + entry.ready
            oldest[label] = max(oldest.get(label, 0.0), entry.oldest_seconds)
            dead[label] = dead.get(label, 0.0) + entry.dead_letters
        self._ready, self._oldest, self._dead_letters = ready, oldest, dead

    def _age(self) -> dict[Labels, float]:
        return {} if self._sampled_at is None else {_NO_LABELS: self._clock() - self._sampled_at}


def _set(gauge: Gauge, value: float) -> None:
    gauge.read = lambda: {_NO_LABELS: value}
