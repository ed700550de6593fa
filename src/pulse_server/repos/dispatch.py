"""The ports to dispatch control: pauses, states of workers, limits with their owners, policies of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.dispatch import DispatchState
from pulse_server.domain.jobs import NewJob
from pulse_server.domain.limit_owners import LimitOwners
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
from pulse_server.domain.policies import PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import Declaration, RunPolicy, StoredRun
from pulse_server.domain.slots import Slots


class DispatchRepo(Protocol):
    """The pause switches, and the states of workers."""

    async def read_gate(self) -> DispatchState: ...

    async def pause_everything(self, reason: str, by: str = "") -> None: ...

    async def resume_everything(self) -> None: ...

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None: ...

    async def resume_topic(self, topic: str) -> None: ...

    async def set_worker_state(
        self, worker_id: str, states: Mapping[str, str], reason: str, by: str = ""
    ) -> None:
        """Set the state of processes of the worker, by run id."""
        ...

    async def resume_worker(self, worker_id: str) -> bool:
        """Delete the states of all processes of the worker. False: there were none."""
        ...


class LimitRepo(Protocol):
    """Limits: claims of limited topics, and the policies in force. ADR-0064"""

    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        """Lease jobs of these topics, in this order, within their limits, rates and lanes."""
        ...

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        """Insert the jobs, all of this limited topic, and claim with the slots, in one statement.

        The claim may return these jobs, older ones, or none. It claims nothing if another session
        has locked the pool: this method does not wait for that lock.
        """
        ...

    async def limit_topic(self, topic: str, policy: LimitPolicy) -> Sequence[OpenTransaction] | None:
        """Put the policy in force. Every server applies it from its next claim on.

        Returns the transactions that have to end first; nothing is changed then. None: it is in force.
        """
        ...

    async def retire(self, topic: str) -> Sequence[OpenTransaction] | None:
        """Stop limiting the topic, as `limit_topic`. Its policy is removed later by `remove_retired`."""
        ...

    async def unmark(self, wanted: Collection[str]) -> list[str]:
        """Let plain claims take topics again that a server was about to limit when it was killed.

        Not those that are `wanted` limited, which the next try limits. Returns these topics.
        """
        ...

    async def remove_retired(self) -> list[str]:
        """End what changes of limits have left, and make retired topics plain. Returns these topics."""
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


class LimitOwnerRepo(Protocol):
    """The owners of limits: operators' overrides and workers' declarations. ADR-0065"""

    async def declare_limits(self, declared: Mapping[str, LimitPolicy], by: str) -> None:
        """Store a worker's declarations by topic. A blank policy withdraws its declaration."""
        ...

    async def read_owners(self, topics: Collection[str] | None = None) -> list[LimitOwners]:
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


class PolicyRepo(Protocol):
    """The policies of topics."""

    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy and return the new one. An empty policy is deleted.

        All of the change is stored, or nothing: retention, runs, and the operators' limits.
        """
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
