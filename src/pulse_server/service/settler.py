"""Lets jobs of workflows start once the jobs that they wait for have ended. ADR-0077"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.domain.workflows import Settled, WorkflowsLocked
from pulse_server.postgres.workflows import PostgresWorkflowRepo
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
# How long a workflow that cannot be settled is left alone. The others go on.
FAILING_REST = timedelta(minutes=1)
# The same for a workflow of which another session of the database has locked a row.
LOCKED_REST = timedelta(seconds=2)

log = logging.getLogger(__name__)


class Settler:
    """Each server has one. The row of a workflow is locked, so settlers of several servers do not meet."""

    def __init__(self, repo: PostgresWorkflowRepo, publisher: WorkflowPublisher) -> None:
        self._repo = repo
        self._publisher = publisher
        self._awaited: dict[str, set[asyncio.Event]] = {}
        # Workflows that could not be settled, and when they are tried again.
        self._failing: dict[str, float] = {}
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
                return SETTLE_INTERVAL if self._failing else SETTLE_PAUSE

    async def settle(self) -> Settled:
        """Take some notices, let jobs start, and publish them.

        If that fails, or meets a lock, each workflow is settled alone: no workflow stops the others.
        """
        now = lease_clock()
        self._failing = {one: until for one, until in self._failing.items() if until > now}
        wanted = None
        if self._failing:
            wanted = [one for one in await self._noticed() if one not in self._failing]
        try:
            return await self._settle(wanted)
        except PulseError:  # of the database, not of a workflow
            raise
        except Exception as error:
            are_failing = await self._settle_each(wanted or await self._noticed())
            if not are_failing and not isinstance(error, WorkflowsLocked):  # a lock may be gone by now
                raise
        return Settled([], 0, {}, [], is_more=True)

    async def _settle_each(self, workflow_ids: Sequence[str]) -> bool:
        """Settle them one by one. Returns whether some of them fail."""
        are_failing = False
        for workflow_id in workflow_ids:
            try:
                await self._settle([workflow_id])
            except PulseError:
                raise
            except Exception as error:
                are_failing = True
                is_locked = isinstance(error, WorkflowsLocked)
                rest = LOCKED_REST if is_locked else FAILING_REST
                self._failing[workflow_id] = lease_clock() + rest.total_seconds()
                if not is_locked:  # who holds the lock is logged as lock_met
                    log.exception(
                        "workflow_failing", extra={"workflow_id": workflow_id, "reason": str(error)}
                    )
        return are_failing

    async def _noticed(self) -> list[str]:
        # More than the failing ones: a hundred of them, which come first, hide no other.
        return await self._repo.noticed_workflows(SETTLE_WORKFLOWS + len(self._failing))

    async def _settle(self, wanted: Sequence[str] | None) -> Settled:
        sent_at = lease_clock()
        settled = await self._repo.settle_workflows(
            workflows=SETTLE_WORKFLOWS,
            notices=SETTLE_NOTICES,
            rounds=SETTLE_ROUNDS,
            jobs=SETTLE_JOBS,
            wanted=wanted,
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
