"""The port to the policies of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pulse_server.domain.policies import PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import Declaration, RunPolicy, StoredRun


class PolicyRepo(Protocol):
    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy and return it as it is then. One that says nothing any more is deleted."""
        ...

    async def declare_policies(self, declared: Mapping[str, RunPolicy], by: str) -> Sequence[Declaration]:
        """Store what a worker declares, by topic; an empty policy takes back the declaration before.

        Returns the declarations that changed, by topic, as they were before. An empty one: there was none.
        """
        ...

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        """By topic, those after one of them. With `topics` only these."""
        ...

    async def read_run_policies(self) -> Mapping[str, StoredRun]:
        """What operators have set and what is declared, for each topic that has either."""
        ...
