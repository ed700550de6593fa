"""The port to the policies of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pulse_server.domain.policies import PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import Declaration, RunPolicy, StoredRun


class PolicyRepo(Protocol):
    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy and return the new one. An empty policy is deleted."""
        ...

    async def declare_policies(self, declared: Mapping[str, RunPolicy], by: str) -> Sequence[Declaration]:
        """Store a worker's declarations by topic. An empty policy withdraws the declaration.

        Returns the previous values of the declarations that changed. An empty one: there was none.
        """
        ...

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        """Policies by topic, after `after`. With `topics`, only these."""
        ...

    async def read_run_policies(self) -> Mapping[str, StoredRun]:
        """Operators' settings and workers' declarations, for each topic that has either."""
        ...
