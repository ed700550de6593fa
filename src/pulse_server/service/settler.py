"""Lets jobs of workflows start once the jobs that they wait for have ended. ADR-0077"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Protocol

from pulse_server.clock import lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.workflows import Settled
from pulse_server.loops import Loop

# The publisher nudges the settler after each end. A tick finds what a server left that died.
SETTLE_INTERVAL = timedelta(milliseconds=500)
# After a settle that left notices and did nothing: another server has their workflows.
SETTLE_PAUSE = timedelta(milliseconds=20)
# Bounds of one transaction. The first of many jobs start while others are let go.
SETTLE_WORKFLOWS = 100
SETTLE_NOTICES = 1000
SETTLE_ROUNDS = 50
SETTLE_JOBS = 1000


class SettlerRepo(Protocol):
    async def settle_workflows(self, *, workflows: int, notices: int, rounds: int, jobs: int) -> Settled: ...


class Settler:
    """Each server has one. The row of a workflow is locked, so settlers of several servers do not meet."""

    def __init__(
        self, repo: SettlerRepo, publisher: Publisher, finished: Callable[[Collection[str]], None]
    ) -> None:
        """`finished` is called with the workflows that have ended."""
        self._repo = repo
        self._publisher = publisher.workflows
        self._finished = finished
        self.loop = Loop("workflows", self.tick, SETTLE_INTERVAL)
        publisher.workflows.nudge = self.loop.nudge

    async def tick(self) -> timedelta:
        while True:
            settled = await self.settle()
            if not settled.is_more:
                return SETTLE_INTERVAL
            if not settled.did_something:
                return SETTLE_PAUSE

    async def settle(self) -> Settled:
        """Take some notices, let jobs start, and publish them."""
        sent_at = lease_clock()
        settled = await self._repo.settle_workflows(
            workflows=SETTLE_WORKFLOWS, notices=SETTLE_NOTICES, rounds=SETTLE_ROUNDS, jobs=SETTLE_JOBS
        )
        self._publish(settled, lease_clock() - sent_at)
        return settled

    def _publish(self, settled: Settled, seconds: float) -> None:
        if settled.ready:
            levels = [level._replace(age_seconds=level.age_seconds + seconds) for level in settled.levels]
            self._publisher.ready(levels, settled.ready)
        for topic, job_ids in settled.dropped.items():
            self._publisher.dropped(topic, job_ids)
        if settled.finished:
            self._finished(settled.finished)
