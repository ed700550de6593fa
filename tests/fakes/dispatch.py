"""The switches in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pulse_server.domain.dispatch import DispatchState, Pause
from pulse_server.domain.errors import Unavailable
from pulse_server.service.gate import Gate

SINCE = datetime(2030, 1, 1, tzinfo=UTC)


class InMemoryDispatchRepo:
    def __init__(self) -> None:
        self.state = DispatchState()
        self.is_away = False

    async def read_gate(self) -> DispatchState:
        self._answer()
        return self.state

    async def pause_everything(self, reason: str, by: str = "") -> None:
        self._answer()
        self.state = replace(self.state, everything=Pause(reason, SINCE, by))

    async def resume_everything(self) -> None:
        self._answer()
        self.state = replace(self.state, everything=None)

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        self._answer()
        self.state = replace(self.state, topics={**self.state.topics, topic: Pause(reason, SINCE, by)})

    async def resume_topic(self, topic: str) -> None:
        self._answer()
        topics = {name: pause for name, pause in self.state.topics.items() if name != topic}
        self.state = replace(self.state, topics=topics)

    def _answer(self) -> None:
        if self.is_away:
            raise Unavailable("The database is away.")


def an_open_gate(repo: InMemoryDispatchRepo | None = None) -> Gate:
    return Gate(repo or InMemoryDispatchRepo(), interval=timedelta(hours=1))
