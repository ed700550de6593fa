"""Looks: which topics have work, in case a wake-up was lost. ADR-0006, ADR-0055"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pulse_server import tuning
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.gate import Gate
from pulse_server.dispatch.lanes import Failures, Lane, Lanes
from pulse_server.dispatch.roster import Roster

LONGEST_REST_SECONDS = 10.0  # between full looks: one that waited for a lock does not show their cost


class Look:
    """When the last one was, and how long it took: the next one comes when it has rested for long enough."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began_at = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._began_at + min(tuning.SAMPLE_REST * self.seconds, LONGEST_REST_SECONDS)

    def begin(self, now: float) -> None:
        self._began_at = now

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a statement that is the whole look: behind a transaction that is held open it is long."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            yield
        finally:
            self.seconds = now() - began


class Looks:
    """The looks of a hub. A claim of a plain topic without bounds is a look, too."""

    def __init__(self, roster: Roster, claims: Claims, gate: Gate, lanes: Lanes, failures: Failures) -> None:
        self.plain = Look()
        self.governed = Look()
        self._demand = roster.demand
        self._floors = roster.floors
        self._claims = claims
        self._gate = gate
        self._lanes = lanes
        self._failures = failures
        self._is_probing = False

    async def tick(self, lane: Lane, now: float) -> None:
        """Look for work, if the looks before have rested for long enough."""
        if self._demand.governed and self.governed.is_due(now):
            self._look_at_governed(now)
        if self.plain.is_due(now):
            self.plain.begin(now)
            await self._look_at_plain(lane)

    def _look_at_governed(self, now: float) -> None:
        """Have the governed topics claimed that have a worker: whether they may start a job, only a claim
        knows. Claims that bring nothing are what the look costs."""
        self.governed.begin(now)
        self.governed.seconds = 0.0
        wanted = self._demand.governed.among(self._demand.topics_with_slots())
        self._demand.add_work(self._gate.open_topics(wanted))

    async def _look_at_plain(self, lane: Lane) -> None:
        """Find the topics that have work, with one small statement for any number of groups. ADR-0055

        Workers without a free slot are not asked for. Their next claim is a full look instead: a job below a
        floor would wait for as long as they have other work.
        """
        self._floors.forget(self._demand.topics_without_slots())
        groups = [
            group for group in self._demand.groups_with_slots() if self._gate.plain_topics(group.topics)
        ]
        topics = self._gate.plain_topics(frozenset(self._demand.topics_with_slots()))
        if len(groups) == 1:
            self._floors.forget(topics)
            self._demand.add_work(topics)  # the claim itself is the look
        elif topics and not self._is_probing:
            self._is_probing = True
            try:
                with self._lanes.step(lane), self.plain.measured():
                    ready = await self._claims.topics_with_ready_jobs(topics)
            except Exception as error:
                self._failures.probe_failed(error)
                # The index of one topic may be what is slow: a few groups at a time probe by a claim.
                for group in self._failures.next_probes(groups):
                    self._floors.forget(group.topics)
                    self._demand.add_work(group.topics)
            else:
                self._failures.probe_succeeded()
                self._floors.forget(ready)
                self._demand.add_work(ready)
            finally:
                self._is_probing = False
