"""What needs an operator's attention in the whole queue, by harm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pulse_server.base.loops import in_turns
from pulse_server.base.sharing import Sample
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.dispatch.service import Gate
from pulse_server.reads.findings import (
    Finding,
    FullestLane,
    TopicFacts,
    about_queue,
    about_topic,
    about_workers,
    is_late,
    ordered,
)
from pulse_server.reads.run_times import long_runs
from pulse_server.reads.servers import Servers
from pulse_server.reads.space import Space
from pulse_server.reads.topics import TopicDepth, TopicRates, Topics
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.topics.store import PostgresLimitRepo

# Late topics whose limits are read, the longest waiting first.
LIMITS_READ = 100
# Late topics whose lanes are counted, and how many waiting jobs of each: some 20 ms in an index.
LANES_COUNTED = 5
LANE_JOBS_COUNTED = 100_000

_SQL = statements("overview.sql")


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
        runs = await long_runs(self._database)
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
