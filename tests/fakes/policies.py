"""The policies of topics in memory."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from pulse_server.domain.policies import PolicyChange, TopicPolicy

SINCE = datetime(2030, 1, 1, tzinfo=UTC)


class InMemoryPolicyRepo:
    def __init__(self) -> None:
        self.policies: dict[str, TopicPolicy] = {}

    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        before = self.policies.pop(topic, TopicPolicy(topic)).kept
        kept = {status: span for status, span in before.items() if status not in change.returned}
        policy = TopicPolicy(topic, {**kept, **change.kept}, by, SINCE)
        if not policy.kept:
            return TopicPolicy(topic)
        self.policies[topic] = policy
        return policy

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        names = sorted(name for name in self.policies if name > after and (topics is None or name in topics))
        return [self.policies[name] for name in names[:limit]]
