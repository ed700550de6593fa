"""Vitals: gauges of the queue and its database, sampled in the background. A scrape makes no query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from pulse_server.base import tuning
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import MOST_TOPICS, OTHER_TOPICS, Gauge, Labels, Metrics
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.reads.horizon import Holder, HolderKind
from pulse_server.reads.run_times import LongRuns, long_runs

_NO_LABELS: Labels = ()
_SQL = statements("vitals.sql")


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
        return await long_runs(self._database)

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
