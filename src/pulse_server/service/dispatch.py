"""Pause and resume dispatch, and keep this server in step with the switches."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import islice

from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.roster import Roster
from pulse_server.domain.dispatch import DispatchState
from pulse_server.loops import Loop
from pulse_server.repos.dispatch import DispatchRepo
from pulse_server.repos.wakeups import Wakeup

# How many paused topics the log names.
PAUSED_TOPICS_SHOWN = 100

log = logging.getLogger(__name__)


class Gate:
    """Reads the pause switches and the limited topics, and has dispatch go by them.

    While the database is away the state stays as it was: an outage must neither pause nor resume a queue.
    ADR-0012
    """

    def __init__(self, repo: DispatchRepo, roster: Roster, claims: Claims, *, interval: timedelta) -> None:
        self._repo = repo
        self._roster = roster
        self._claims = claims
        self._reads = self._newest = 0
        self.is_primed = False
        self.loop = Loop("gate", self.refresh, interval)

    @property
    def state(self) -> DispatchState:
        return self._roster.switches

    async def refresh(self) -> None:
        """Read the switches. The first call comes before the server accepts work, and must not fail."""
        self._reads = read = self._reads + 1
        state = await self._repo.read_gate()
        if read < self._newest:
            return  # a read that began later was answered sooner
        self._newest = read
        self.is_primed = True
        if state == self.state:
            return
        log.info(
            "dispatch_gate",
            extra={
                "paused": state.everything is not None,
                "reason": state.everything.reason if state.everything else "",
                "paused_by": state.everything.by if state.everything else "",
                "paused_topics": sorted(islice(state.topics, PAUSED_TOPICS_SHOWN)),
                "paused_topic_count": len(state.topics),
                "limited_topic_count": len(state.limited),
            },
        )
        self._claims.release_soon(self._roster.switch(state))

    def heard(self, wakeup: Wakeup) -> None:
        """Another server has something new."""
        if wakeup.gate_changed:
            self.loop.nudge()


class Dispatch:
    """Sets the pause switches: first the row, then this server's gate, then other gates."""

    def __init__(self, repo: DispatchRepo, gate: Gate, publisher: Publisher) -> None:
        self._repo = repo
        self._gate = gate
        self._publisher = publisher

    async def pause(self, topic: str | None, reason: str, by: str = "") -> None:
        """Pause one topic, or everything. `by` is the user."""
        if topic is None:
            await self._repo.pause_everything(reason, by)
        else:
            await self._repo.pause_topic(topic, reason, by)
        await self._publish()

    async def resume(self, topic: str | None) -> None:
        if topic is None:
            await self._repo.resume_everything()
        else:
            await self._repo.resume_topic(topic)
        await self._publish()

    async def status(self) -> DispatchState:
        """The switches as the database has them now."""
        return await self._repo.read_gate()

    async def _publish(self) -> None:
        await self._gate.refresh()
        self._publisher.paused_or_resumed()
