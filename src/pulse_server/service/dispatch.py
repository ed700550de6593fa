"""Pause and resume dispatch."""

from __future__ import annotations

from pulse_server.dispatch.gate import Gate
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.dispatch import DispatchState
from pulse_server.repos.dispatch import DispatchRepo


class Dispatch:
    """Sets the pause switches: the row first, then the gate of this server, then those of the others."""

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
