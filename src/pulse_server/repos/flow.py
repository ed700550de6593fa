"""The port to flow control: claims of limited topics, and the policies in force. ADR-0064"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.flow import (
    FlowPolicy,
    HeldUntil,
    LaneState,
    LimitedClaims,
    LimitedHandover,
    Limits,
    Repaired,
)
from pulse_server.domain.jobs import NewJob
from pulse_server.repos.jobs import Slots


class FlowRepo(Protocol):
    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        """Lease jobs of these topics, in this order, within their limits, rates and lanes."""
        ...

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        """Insert the jobs, all of this limited topic, and claim with the slots, in one statement.

        The claim may return these jobs, older ones, or none. It claims nothing if another session
        holds the turnstile: this method waits for no lock of flow control.
        """
        ...

    async def limit_topic(self, topic: str, policy: FlowPolicy) -> None:
        """Put the policy in force. Every server applies it from its next claim on."""
        ...

    async def retire(self, topic: str) -> None:
        """Stop limiting the topic. Its policy is removed later by `remove_retired`."""
        ...

    async def remove_retired(self) -> list[str]:
        """Make retired topics plain once they have no job in a lane. Returns these topics."""
        ...

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        """Start no job of the topic, nor of other topics in its pool, for `span`; zero ends the
        hold.

        The longest hold counts. A worker cannot end an operator's hold. Returns the time when the
        topic's hold ends, or None if the topic is not limited.
        """
        ...

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        """Set the weight and limit of one lane. False: the topic has no lanes."""
        ...

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        """Limited topics by name, after `after`. With `topics`, only these."""
        ...

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        """The longest-waiting lanes; with `by_share`, the lanes with the most running jobs."""
        ...

    async def forget_lanes(self, limit: int) -> int:
        """Delete lanes that were not used for a long time. Returns their number."""
        ...

    async def sweep(self) -> Repaired:
        """Compare the stored counts with the running jobs, and correct wrong counts."""
        ...
