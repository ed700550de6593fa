"""The overview, over the jobs table in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pulse_server.domain.latencies import added_up
from pulse_server.domain.overview import (
    ALL_TOPICS,
    ConnectedWorker,
    Counts,
    HeldJob,
    Holding,
    Minute,
    Rates,
    Server,
    Sparing,
    TopicActivity,
    TopicBuckets,
    TopicDepth,
    TopicRates,
)
from pulse_server.domain.status import WAITING, JobStatus
from tests.fakes.jobs import InMemoryJobRepo

_MINUTE = timedelta(minutes=1)


class InMemoryOverviewRepo:
    """The whole port. `calls` counts the calls of each method."""

    def __init__(self, store: InMemoryJobRepo) -> None:
        self._store = store
        self.minutes: dict[tuple[datetime, str], TopicActivity] = {}
        self.seen: dict[str, tuple[datetime, Server]] = {}
        self.calls: Counter[str] = Counter()

    async def topic_depths(self) -> list[TopicDepth]:
        self._answer("topic_depths")
        by_topic = defaultdict(list)
        for job in self._store.jobs.values():
            by_topic[job.topic].append(job)
        depths = []
        for topic, jobs in by_topic.items():
            statuses = Counter(job.status for job in jobs)
            ready = [job.next_run_at for job in jobs if job.ready]
            depth = TopicDepth(
                topic,
                ready=len(ready),
                waiting=sum(job.status in WAITING and not job.ready for job in jobs),
                running=statuses[JobStatus.RUNNING],
                dead_lettered=statuses[JobStatus.DEAD_LETTERED],
                canceled=statuses[JobStatus.CANCELED],
                oldest_ready_at=min(ready, default=None),
            )
            if len(jobs) > statuses[JobStatus.COMPLETED]:
                depths.append(depth)
        return depths

    async def topic_rates(self) -> dict[str, TopicRates]:
        self._answer("topic_rates")
        rates: dict[str, TopicRates] = {}
        for minutes_ago, topic, activity in self._last_hour():
            found, counts = rates.get(topic, TopicRates()), activity.counts
            new = Rates(counts.submitted, counts.completed, counts.failed, counts.dead_lettered)
            hour = Rates(*(old + more for old, more in zip(found.last_hour, new, strict=True)))
            rates[topic] = TopicRates(new if minutes_ago == 1 else found.last_minute, hour)
        return rates

    async def topic_buckets(self) -> dict[str, TopicBuckets]:
        self._answer("topic_buckets")
        buckets: dict[str, TopicBuckets] = {}
        for _, topic, activity in self._last_hour():
            if activity.wait or activity.run:
                found = buckets.get(topic, TopicBuckets())
                buckets[topic] = TopicBuckets(
                    added_up([found.wait, activity.wait]), added_up([found.run, activity.run])
                )
        return buckets

    async def topic_minutes(self, topic: str, count: int) -> list[Minute]:
        self._answer("topic_minutes")
        now = _minute(self._store.clock.now())
        moments = [now - minutes_ago * _MINUTE for minutes_ago in reversed(range(count))]
        return [Minute(at, *self.minutes.get((at, topic), TopicActivity(topic))[1:]) for at in moments]

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        self._answer("add_topic_minutes")
        minute = _minute(self._store.clock.now())
        for new in activity:
            old = self.minutes.get((minute, new.topic), TopicActivity(new.topic))
            self.minutes[minute, new.topic] = TopicActivity(
                new.topic,
                Counts(*(before + more for before, more in zip(old.counts, new.counts, strict=True))),
                added_up([old.wait, new.wait]),
                added_up([old.run, new.run]),
            )

    async def forget_topic_minutes(self, older_than: timedelta) -> None:
        self._answer("forget_topic_minutes")
        border = self._store.clock.now() - older_than
        self.minutes = {key: counted for key, counted in self.minutes.items() if key[0] >= border}

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        self._answer("held_jobs")
        by_worker: dict[str, list[HeldJob]] = defaultdict(list)
        for job in self._store.jobs.values():
            if job.locked_by is not None and job.started_at is not None and job.lease_until is not None:
                by_worker[job.locked_by].append(
                    HeldJob(
                        job.id,
                        job.topic,
                        job.locked_by,
                        job.attempts,
                        job.started_at,
                        job.lease_until,
                        job.progress and job.progress._replace(cursor=""),
                    )
                )
        return {
            worker: Holding(
                len(jobs), tuple(sorted(jobs, key=lambda job: (job.since, job.job_id))[:per_worker])
            )
            for worker, jobs in by_worker.items()
        }

    async def record_server(
        self,
        server_id: str,
        name: str,
        workers: Sequence[ConnectedWorker],
        sparing: Sparing | None = None,
    ) -> None:
        self._answer("record_server")
        now = self._store.clock.now()
        started_at = self.seen[server_id][1].started_at if server_id in self.seen else now
        self.seen[server_id] = (now, Server(server_id, name, tuple(workers), started_at))

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        self._answer("forget_servers")
        border = self._store.clock.now() - silent_for
        self.seen = {
            other: entry for other, entry in self.seen.items() if other != server_id and entry[0] >= border
        }

    async def list_servers(self, silent_for: timedelta) -> list[Server]:
        self._answer("list_servers")
        border = self._store.clock.now() - silent_for
        heard_of = [server for seen_at, server in self.seen.values() if seen_at >= border]
        return sorted(heard_of, key=lambda server: server.name)

    def _last_hour(self) -> Iterator[tuple[int, str, TopicActivity]]:
        """The last sixty whole minutes of each topic, with their age."""
        now = _minute(self._store.clock.now())
        for (minute, topic), activity in self.minutes.items():
            if now - 60 * _MINUTE <= minute < now and topic != ALL_TOPICS:
                yield (now - minute) // _MINUTE, topic, activity

    def _answer(self, method: str) -> None:
        self._store._answer(method)
        self.calls[method] += 1


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
