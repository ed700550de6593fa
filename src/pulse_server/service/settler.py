"""Lets jobs of workflows start once the jobs that they wait for have ended. ADR-0077"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from pulse_server.clock import lease_clock
from pulse_server.domain.workflows import Settled
from pulse_server.loops import Loop
from pulse_server.service.workflow_publisher import WorkflowPublisher

# Each end of a job nudges the settler. A tick finds what a server left that died.
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

    def __init__(self, repo: SettlerRepo, publisher: WorkflowPublisher) -> None:
        self._repo = repo
        self._publisher = publisher
        self._awaited: dict[str, set[asyncio.Event]] = {}
        self.loop = Loop("workflows", self.tick, SETTLE_INTERVAL)

    @contextmanager
    def awaiting(self, workflow_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when this server finds that the workflow has ended."""
        ended = asyncio.Event()
        self._awaited.setdefault(workflow_id, set()).add(ended)
        try:
            yield ended
        finally:
            self._awaited[workflow_id].discard(ended)
            if not self._awaited[workflow_id]:
                del self._awaited[workflow_id]

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
        for workflow_id in settled.finished:
            for ended in self._awaited.get(workflow_id, ()):
                ended.set()
