"""Policies of topics: how long their finished jobs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from pulse.models.times import time_of
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

Keep: TypeAlias = timedelta | Literal["forever", "default"]
"""How long finished jobs are kept. "default": as long as the settings of the servers say."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """How long the finished jobs of a topic are kept, by status."""

    topic: str
    keep_completed: Keep
    keep_canceled: Keep
    keep_dead_lettered: Keep
    set_by: str = ""
    """The user of the last change; empty if the server requires none."""
    set_at: datetime | None = None
    """None: the topic has no policy of its own."""


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The topics that have a policy, by name."""

    policies: tuple[TopicPolicy, ...]
    server: TopicPolicy
    """What the settings of the server say, for all other topics. Its topic is empty."""

    def __iter__(self) -> Iterator[TopicPolicy]:
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self.policies)


def topic_policy(policy: pb.TopicPolicy) -> TopicPolicy:
    """Return the policy in a message."""
    return TopicPolicy(
        policy.topic,
        _keep(policy.retention.completed),
        _keep(policy.retention.canceled),
        _keep(policy.retention.dead_lettered),
        policy.set_by,
        time_of(policy, "set_at"),
    )


def topic_policies(policies: Iterable[pb.TopicPolicy], server: pb.Retention) -> TopicPolicies:
    """Return the policies in messages."""
    return TopicPolicies(tuple(map(topic_policy, policies)), topic_policy(pb.TopicPolicy(retention=server)))


def _keep(keep: pb.Keep) -> Keep:
    match keep.WhichOneof("length"):
        case "duration":
            return keep.duration.ToTimedelta()
        case "forever":
            return "forever"
    return "default"
