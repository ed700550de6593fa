"""The port to the groups of dead letters."""

from __future__ import annotations

from typing import Protocol

from pulse_server.domain.dead_letters import DeadLetterGroups


class DeadLetterRepo(Protocol):
    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        """Return the groups of a topic, or of all topics, by their newest job."""
        ...
