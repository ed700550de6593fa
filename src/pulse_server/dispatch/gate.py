"""The gate: the pause switches and the governed topics as this server last read them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from itertools import islice

from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.governed import GovernedTopics
from pulse_server.dispatch.roster import Roster
from pulse_server.domain.dispatch import DispatchState
from pulse_server.loops import Loop
from pulse_server.repos.dispatch import DispatchRepo

# Of the paused topics so many are named in the log.
PAUSED_TOPICS_SHOWN = 100

log = logging.getLogger(__name__)


class Gate:
    """The topics that may be claimed. While the database is away the state stays as it was: an outage must
    neither pause nor resume a queue. ADR-0012"""

    def __init__(self, repo: DispatchRepo, roster: Roster, claims: Claims, *, interval: timedelta) -> None:
        self._repo = repo
        self._roster = roster
        self._claims = claims
        self._state = DispatchState()
        self._reads = self._newest = 0
        self.is_primed = False
        self.loop = Loop("gate", self.refresh, interval)

    @property
    def state(self) -> DispatchState:
        return self._state

    def open_topics(self, topics: frozenset[str]) -> frozenset[str]:
        return self._state.open_topics(topics)

    def plain_topics(self, topics: frozenset[str]) -> frozenset[str]:
        """Those of the topics that are neither paused nor governed."""
        are_open, governed = self._state.open_topics(topics), self._state.governed
        return frozenset(topic for topic in are_open if topic not in governed) if governed else are_open

    def paused(self, topics: Collection[str]) -> Collection[str]:
        """Those of the topics that are paused."""
        asked = frozenset(topics)
        return asked - self.open_topics(asked)

    async def refresh(self) -> None:
        """Read the switches. The first call comes before the server accepts work, and must not fail."""
        self._reads = read = self._reads + 1
        state = await self._repo.read_gate()
        if read < self._newest:
            return  # a read that began later was answered sooner
        self._newest = read
        self.is_primed = True
        if state == self._state:
            return
        self._state = state
        log.info(
            "dispatch_gate",
            extra={
                "paused": state.everything is not None,
                "reason": state.everything.reason if state.everything else "",
                "paused_by": state.everything.by if state.everything else "",
                "paused_topics": sorted(islice(state.topics, PAUSED_TOPICS_SHOWN)),
                "paused_topic_count": len(state.topics),
                "governed_topic_count": len(state.governed),
            },
        )
        self._roster.demand.governed = GovernedTopics(state.governed)
        if state.has_pauses:
            topics = frozenset() if state.everything is not None else frozenset(state.topics)
            self._claims.release_soon(self._roster.recall(topics))
        self._roster.wake(None)
