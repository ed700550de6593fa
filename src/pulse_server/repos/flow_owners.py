"""The port to who owns a limit: what operators have set, and what the code of workers declares. ADR-0065"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.flow import FlowPolicy
from pulse_server.domain.flow_owners import FlowOwners


class FlowOwnerRepo(Protocol):
    async def override_flow(self, topic: str, policy: FlowPolicy, returned: Collection[str], by: str) -> None:
        """Set the entries of the policy, and return the named ones to what is declared."""
        ...

    async def declare_flow(self, declared: Mapping[str, FlowPolicy], by: str) -> None:
        """Store what a worker declares, by topic; a blank policy takes back its declaration before."""
        ...

    async def read_owners(self, topics: Collection[str] | None = None) -> list[FlowOwners]:
        """What is set and declared, by topic. With `topics` only of these."""
        ...

    async def mark_missing(self) -> None:
        """Record which of the workers with declarations are connected."""
        ...

    async def forget_declarations(self, topics: Collection[str], after: timedelta) -> None:
        """Delete those of workers that have been away for so long."""
        ...

    async def forget_owners(self, topics: Collection[str]) -> None:
        """Delete what says nothing any more."""
        ...
