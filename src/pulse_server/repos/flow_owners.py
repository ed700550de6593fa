"""The port to the owners of limits: operators' overrides and workers' declarations. ADR-0065"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.flow import FlowPolicy
from pulse_server.domain.flow_owners import FlowOwners


class FlowOwnerRepo(Protocol):
    async def override_flow(self, topic: str, policy: FlowPolicy, returned: Collection[str], by: str) -> None:
        """Override the entries of the policy, and reset the `returned` ones to the declaration."""
        ...

    async def declare_flow(self, declared: Mapping[str, FlowPolicy], by: str) -> None:
        """Store a worker's declarations by topic. A blank policy withdraws its declaration."""
        ...

    async def read_owners(self, topics: Collection[str] | None = None) -> list[FlowOwners]:
        """Overrides and declarations by topic. With `topics`, only these."""
        ...

    async def mark_missing(self) -> None:
        """Record which of the workers with declarations are connected."""
        ...

    async def forget_declarations(self, topics: Collection[str], after: timedelta) -> None:
        """Delete declarations of workers that have been away for at least `after`."""
        ...

    async def forget_owners(self, topics: Collection[str]) -> None:
        """Delete empty entries."""
        ...
