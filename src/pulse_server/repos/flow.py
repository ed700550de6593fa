"""The port to flow control: claims of governed topics, and the policies in force. ADR-0064"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.flow import (
    FlowPolicy,
    GovernedClaims,
    GovernedHandover,
    HeldUntil,
    LaneState,
    Limits,
    Repaired,
)
from pulse_server.domain.jobs import NewJob
from pulse_server.repos.jobs import Slots


class FlowRepo(Protocol):
    async def claim_governed(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> GovernedClaims:
        """Lease jobs of these topics, in this order, as many as their limits, rates and lanes permit."""
        ...

    async def hand_over_governed(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> GovernedHandover:
        """Insert the jobs, all of this governed topic, and claim with the slots, in one statement.

        What is claimed may be these jobs or others that have waited, or none. If another session has the
        turnstile, nothing is claimed: this waits for no lock of flow control.
        """
        ...

    async def govern(self, topic: str, policy: FlowPolicy) -> None:
        """Put the policy in force. It counts from the next claim on, at every server."""
        ...

    async def retire(self, topic: str) -> None:
        """The topic is to have no policy. From now on nothing limits it."""
        ...

    async def remove_retired(self) -> list[str]:
        """Make topics plain that are retired and have no job in a lane any more. Returns them."""
        ...

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        """Start no job of the topic, and of others of its pool, for so long; zero ends it.

        Of several holds the longest counts. A worker ends no hold of an operator. Returns until when the
        topic is held then; None: it is not governed.
        """
        ...

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        """Set what holds for one lane. False: the topic has no lanes."""
        ...

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        """The governed topics by name, those after one of them. With `topics` only these."""
        ...

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        """The lanes that have waited the longest, or those with the most running jobs."""
        ...

    async def forget_lanes(self, limit: int) -> int:
        """Delete lanes that have not been used for long. Returns how many."""
        ...

    async def sweep(self) -> Repaired:
        """Compare the counts with what runs, and count anew what differs."""
        ...
