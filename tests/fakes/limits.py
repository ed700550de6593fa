"""Limits that a test answers for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from pulse_server.dispatch.rules import LimitedClaims
from pulse_server.jobs.reports import Slots
from pulse_server.topics.rules import Limits, Repaired


class FakeLimits:
    """No topic has a job to start. Sweeps find what `repaired` has, once; `retired` are to be removed."""

    def __init__(self) -> None:
        self.repaired = Repaired(0, 0)
        self.retired: list[str] = []
        self.idle_lanes = 0
        self.limits: list[Limits] = []
        self.calls: list[str] = []

    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        self.calls.append("claim_limited")
        return LimitedClaims((), {})

    async def remove_retired(self) -> list[str]:
        self.calls.append("remove_retired")
        removed, self.retired = self.retired, []
        return removed

    async def forget_lanes(self, limit: int) -> int:
        self.calls.append("forget_lanes")
        forgotten = min(limit, self.idle_lanes)
        self.idle_lanes -= forgotten
        return forgotten

    async def sweep(self) -> Repaired:
        self.calls.append("sweep")
        repaired, self.repaired = self.repaired, Repaired(0, 0)
        return repaired

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        self.calls.append("list_limits")
        return [found for found in self.limits if topics is None or found.topic in topics][:limit]
