"""Keeps limits exact: ends limits that were removed, proves the counts, and shows them. ADR-0064"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from pulse_server.base.loops import Loop, in_turns
from pulse_server.base.metrics import MOST_TOPICS, OTHER_TOPICS, Labels, Metrics
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.service import Gate
from pulse_server.domain.limits import Limits
from pulse_server.postgres.limits import PostgresLimitRepo
from pulse_server.service.topic_settings import remove_retired

# A sweep repairs counters that were changed by hand: jobs may wait for it. It reads each running
# limited job.
SWEEP_INTERVAL = timedelta(seconds=30)
# Every this many rounds, delete unused lanes, by statements that look at each lane.
FORGETTING_ROUNDS = 20
FORGOTTEN_LANES = 10_000
# There may be 100,000 limited topics; these take some 3 ms.
TOPICS_IN_A_TURN = 10_000

log = logging.getLogger(__name__)


class LimitSweep:
    """Sends nothing while no topic is limited."""

    def __init__(self, repo: PostgresLimitRepo, gate: Gate, publisher: Publisher, metrics: Metrics) -> None:
        self._repo = repo
        self._gate = gate
        self._publisher = publisher
        self._metrics = metrics
        self._rounds = 0
        self._limits: Sequence[Limits] = ()
        metrics.limited_running.read = lambda: self._gauge(lambda topic: topic.running)
        metrics.limit_in_force.read = lambda: self._gauge(lambda topic: topic.in_force.get("running"))
        metrics.rate_spent.read = lambda: self._gauge(
            lambda topic: (topic.next_start_at or topic.closed_until) is not None
        )
        metrics.topic_limited.read = lambda: self._gauge(lambda topic: bool(topic.why_full))
        self.loop = Loop("limit sweep", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> None:
        if not self._gate.state.limited:
            self._limits = ()
            return
        repaired = await self._repo.sweep()
        self._metrics.pools_repaired.add(by=repaired.pools)
        self._metrics.lanes_repaired.add(by=repaired.lanes)
        if any(repaired):
            log.error("limits_repaired", extra=repaired._asdict())
            self._publisher.limits_changed(self._gate.state.limited)
        self._limits = await self._repo.list_limits(limit=MOST_TOPICS, topics=await self._named())
        self._rounds += 1
        if self._rounds % FORGETTING_ROUNDS == 0:
            while await self._repo.forget_lanes(FORGOTTEN_LANES) == FORGOTTEN_LANES:
                pass
        await remove_retired(self._repo, self._gate.refresh, self._publisher)

    async def _named(self) -> list[str]:
        """The limited topics that have a name among the metrics: a thousand at the most."""
        return [
            topic
            async for some in in_turns(list(self._gate.state.limited), TOPICS_IN_A_TURN)
            for topic in some
            if self._metrics.topic(topic) != OTHER_TOPICS
        ]

    def _gauge(self, read: Callable[[Limits], float | None]) -> dict[Labels, float]:
        """A number for each topic that has one, and a name among the metrics."""
        numbers = {(self._metrics.topic(limits.topic),): read(limits) for limits in self._limits}
        numbers.pop((OTHER_TOPICS,), None)
        return {labels: float(number) for labels, number in numbers.items() if number is not None}
