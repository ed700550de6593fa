"""The port to the policies of topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pulse_server.domain.policies import PolicyChange, TopicPolicy


class PolicyRepo(Protocol):
    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy and return it as it is then. One that says nothing any more is deleted."""
        ...

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        """By topic, those after one of them. With `topics` only these."""
        ...
