"""The pause switch: what this replica remembers of it, and how it is turned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from itertools import islice

from pulse import failpoints
from pulse_server import tuning
from pulse_server.domain.dispatch import DispatchState
from pulse_server.domain.errors import Unavailable
from pulse_server.loops import Loop
from pulse_server.repos.dispatch import DispatchRepo
from pulse_server.service.signals import Signals

log = logging.getLogger(__name__)


class Gate:
    """What may be handed out, as last read. Without the database it stays as it was: a blip must neither
    pause a queue nor let a paused one go. ADR-0012"""

    def __init__(self, repo: DispatchRepo, *, interval: timedelta) -> None:
        self._repo = repo
        self._state = DispatchState()
        self._reads = self._newest = 0
        self.is_primed = False
        self._changed: Callable[[], object] = lambda: None
        self.loop = Loop("gate", self.refresh, interval)

    def on_change(self, changed: Callable[[], object]) -> None:
        self._changed = changed

    @property
    def state(self) -> DispatchState:
        return self._state

    def open_topics(self, topics: frozenset[str]) -> frozenset[str]:
        return self._state.open_topics(topics)

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
                "paused_topics": sorted(islice(state.topics, tuning.PAUSED_TOPICS_SHOWN)),
                "paused_topic_count": len(state.topics),
            },
        )
        self._changed()


class PauseControl:
    """Turns the switches: the row first, then this replica's gate, then the others' by a wake-up."""

    def __init__(self, repo: DispatchRepo, gate: Gate, signals: Signals) -> None:
        self._repo = repo
        self._gate = gate
        self._signals = signals

    @failpoints.before("switch.turning", Unavailable)
    async def pause(self, topic: str | None, reason: str, by: str = "") -> None:
        """Pause one topic, or everything. `by` is the user who does."""
        if topic is None:
            await self._repo.pause_everything(reason, by)
        else:
            await self._repo.pause_topic(topic, reason, by)
        await self._tell()

    @failpoints.before("switch.turning", Unavailable)
    async def resume(self, topic: str | None) -> None:
        if topic is None:
            await self._repo.resume_everything()
        else:
            await self._repo.resume_topic(topic)
        await self._tell()

    async def status(self) -> DispatchState:
        """The switches as the database has them now."""
        return await self._repo.read_gate()

    @failpoints.before("switch.turned", Unavailable)
    async def _tell(self) -> None:
        await self._gate.refresh()
        self._signals.gate_changed()
