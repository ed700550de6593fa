"""The port to dead letters as groups."""

from __future__ import annotations

from typing import Protocol

from pulse_server.domain.dead_letters import DeadLetterGroups


class DeadLetterRepo(Protocol):
    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """The groups of a topic, or of all, with the latest dead letters."""
        ...
