"""What operators see at a glance, over the jobs table in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from pulse_server.domain.overview import (
    ConnectedWorker,
    HeldJob,
    Holding,
    Rates,
    Server,
    TopicActivity,
    TopicDepth,
    TopicRates,
)
from pulse_server.domain.status import WAITING, JobStatus
from tests.fakes.jobs import InMemoryJobRepo

_MINUTE = timedelta(minutes=1)


class InMemoryOverviewRepo:
    """Obeys the port to the letter. `calls` counts how often each method was asked."""

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
        now = _minute(self._store.clock.now())
        rates: dict[str, TopicRates] = {}
        for (minute, topic), counted in self.minutes.items():
            if now - 60 * _MINUTE <= minute < now:
                found = rates.get(topic, TopicRates())
                new = Rates(counted.submitted, counted.completed, counted.failed, counted.dead_lettered)
                hour = Rates(*(old + more for old, more in zip(found.last_hour, new, strict=True)))
                rates[topic] = TopicRates(new if minute == now - _MINUTE else found.last_minute, hour)
        return rates

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        self._answer("add_topic_minutes")
        minute = _minute(self._store.clock.now())
        for new in activity:
            found = self.minutes.get((minute, new.topic))
            old = found[1:] if found else (0,) * len(new[1:])
            self.minutes[minute, new.topic] = TopicActivity(
                new.topic, *(before + more for before, more in zip(old, new[1:], strict=True))
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
                    HeldJob(job.id, job.topic, job.locked_by, job.attempts, job.started_at, job.lease_until)
                )
        return {
            worker: Holding(
                len(jobs), tuple(sorted(jobs, key=lambda job: (job.since, job.job_id))[:per_worker])
            )
            for worker, jobs in by_worker.items()
        }

    async def record_server(self, server_id: str, name: str, workers: Sequence[ConnectedWorker]) -> None:
        self._answer("record_server")
        self.seen[server_id] = (self._store.clock.now(), Server(server_id, name, tuple(workers)))

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

    def _answer(self, method: str) -> None:
        self._store._answer(method)
        self.calls[method] += 1


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
