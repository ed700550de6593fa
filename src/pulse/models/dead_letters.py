"""Dead letters, grouped by what killed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.jobs import JobInfo, job_info
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one topic whose errors are alike but for numbers, ids and quoted values."""

    topic: str
    error_group: str
    """`none` for those that died before there were groups."""
    count: int
    first_at: datetime | None
    last_at: datetime | None
    sample: JobInfo
    """The one that died last, without its payload."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters in groups, those first that somebody joined last."""

    groups: tuple[DeadLetterGroup, ...]
    groups_left_out: int
    """So many more did not fit the limit."""
    counted_at: datetime | None

    def __iter__(self) -> Iterator[DeadLetterGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


def dead_letters(response: pb.ListDeadLetterGroupsResponse) -> DeadLetters:
    """Read the groups of dead letters off the wire."""
    return DeadLetters(
        tuple(
            DeadLetterGroup(
                topic=group.topic,
                error_group=group.error_group,
                count=group.count,
                first_at=time_of(group, "first_at"),
                last_at=time_of(group, "last_at"),
                sample=job_info(group.sample),
            )
            for group in response.groups
        ),
        response.groups_left_out,
        time_of(response, "counted_at"),
    )
