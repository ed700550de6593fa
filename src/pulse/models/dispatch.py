"""The state of dispatch: what is paused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class TopicPause:
    """A pause of one topic."""

    reason: str
    paused_at: datetime | None
    paused_by: str = ""
    """The user; empty if the server requires none."""


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """What is paused. Times are aware and in UTC."""

    paused: bool
    """True while dispatch as a whole is paused."""
    reason: str
    """The reason given for the pause of dispatch as a whole; otherwise empty."""
    paused_at: datetime | None
    topics: Mapping[str, TopicPause]
    """The topics that are paused by name."""
    paused_by: str = ""
    """The user who paused dispatch as a whole; empty if the server requires none."""
    topics_left_out: int = 0
    """How many further topics are paused by name, for which the response had no room."""

    def is_paused(self, topic: str) -> bool:
        """True while this topic is paused, by name or with all others.

        It may be False for a paused topic while there are `topics_left_out`.
        """
        return self.paused or topic in self.topics


def dispatch_status(response: pb.GetDispatchStatusResponse) -> DispatchStatus:
    """Return the state in a message."""
    return DispatchStatus(
        paused=response.paused,
        reason=response.reason,
        paused_at=time_of(response, "paused_at"),
        topics={
            paused.topic: TopicPause(paused.reason, time_of(paused, "paused_at"), paused.paused_by)
            for paused in response.topics
        },
        paused_by=response.paused_by,
        topics_left_out=response.topics_left_out,
    )
