"""Limits that a test answers for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from pulse_server.domain.jobs import NewJob
from pulse_server.domain.limits import (
    HeldUntil,
    LaneState,
    LimitedClaims,
    LimitedHandover,
    LimitPolicy,
    Limits,
    OpenTransaction,
    Repaired,
)
from pulse_server.domain.slots import Slots


class FakeLimitRepo:
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

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        raise NotImplementedError

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

    async def limit_topic(self, topic: str, policy: LimitPolicy) -> Sequence[OpenTransaction] | None:
        raise NotImplementedError

    async def retire(self, topic: str) -> Sequence[OpenTransaction] | None:
        raise NotImplementedError

    async def unmark(self, wanted: Collection[str]) -> list[str]:
        raise NotImplementedError

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        raise NotImplementedError

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        raise NotImplementedError

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        self.calls.append("list_limits")
        return [found for found in self.limits if topics is None or found.topic in topics][:limit]

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        raise NotImplementedError
