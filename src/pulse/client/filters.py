"""Which jobs: the filter that lists, counts and acts on many take."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pulse.errors import InvalidArgument
from pulse.models.jobs import JobStatus
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


class JobFilter(TypedDict, total=False):
    """What jobs have to be like. Leave out, or give None for, what does not matter."""

    topic: str | None
    status: JobStatus | str | None
    since: datetime | None
    """Submitted then or later."""
    before: datetime | None
    """Submitted earlier than that."""
    schedule_id: str | None
    """Made by this schedule."""
    error_contains: str | None
    """This text is in the last error, in upper or lower case."""
    metadata: Mapping[str, str] | None
    """Each of these entries is among the job's."""
    error_group: str | None
    """Dead letters that died alike, as `dead_letters` tells it."""


def filter_fields(
    *,
    topic: str | None = None,
    status: JobStatus | str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    schedule_id: str | None = None,
    error_contains: str | None = None,
    metadata: Mapping[str, str] | None = None,
    error_group: str | None = None,
) -> dict[str, Any]:
    """Return the filter by the names that it has on the wire. Raises InvalidArgument if it has a gap."""
    return {
        "topic": not_empty("topic", topic),
        "status": not_empty("status", status),
        "submitted_since": _aware("since", since),
        "submitted_before": _aware("before", before),
        "schedule_id": not_empty("schedule_id", schedule_id),
        "error_contains": not_empty("error_contains", error_contains),
        "metadata": metadata,
        "error_group": not_empty("error_group", error_group),
    }


def job_filter(**which: Unpack[JobFilter]) -> pb.JobFilter:
    """Return the filter as a message. Raises InvalidArgument naming what cannot be sent."""
    return message(pb.JobFilter, **filter_fields(**which))


def not_empty(name: str, value: str | None) -> str:
    """Return the value as it goes on the wire. Raises InvalidArgument if it is there, but empty."""
    # On the wire empty is anything. Whoever computed a value and got nothing did not mean that.
    if value == "":
        raise InvalidArgument(f"{name} is empty: give one, or leave it out if any will do.")
    return value or ""


def _aware(name: str, moment: datetime | None) -> datetime | None:
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        raise InvalidArgument(
            f"{name}={moment!r} has no time zone. Use an aware datetime, such as datetime.now(UTC) - …."
        )
    return moment
