"""Dead letters, grouped by their errors."""

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
    """Dead letters of one topic whose errors differ only in numbers, ids and quoted values.

    Of an error that has a cause, the innermost cause alone is compared.
    """

    topic: str
    error_group: str
    """`none` for dead letters that are older than the groups."""
    count: int
    first_at: datetime | None
    last_at: datetime | None
    sample: JobInfo
    """The latest dead letter of the group, without its payload."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The groups of dead letters, those with the latest dead letter first."""

    groups: tuple[DeadLetterGroup, ...]
    groups_left_out: int
    """The number of groups beyond the limit."""
    counted_at: datetime | None

    def __iter__(self) -> Iterator[DeadLetterGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


def dead_letters(response: pb.ListDeadLetterGroupsResponse) -> DeadLetters:
    """Return the groups of a message."""
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
