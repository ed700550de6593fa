"""The port to the pause switches."""

from __future__ import annotations

from typing import Protocol

from pulse_server.domain.dispatch import DispatchState


class DispatchRepo(Protocol):
    async def read_gate(self) -> DispatchState: ...

    async def pause_everything(self, reason: str, by: str = "") -> None: ...

    async def resume_everything(self) -> None: ...

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None: ...

    async def resume_topic(self, topic: str) -> None: ...
