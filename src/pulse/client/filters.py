"""The filter of the verbs that list, count or change many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pulse.client.options import check_known
from pulse.errors import InvalidArgument
from pulse.messages import check_aware, message
from pulse.models.jobs import JobStatus
from pulse.v1 import pulse_pb2 as pb


class JobFilter(TypedDict, total=False):
    """The conditions that jobs have to meet. A key that is absent or None is no condition."""

    topic: str | None
    topics: Iterable[str] | None
    """On one of these topics."""
    status: JobStatus | str | None
    statuses: Iterable[JobStatus | str] | None
    """In one of these statuses."""
    since: datetime | None
    """Submitted at this time or later."""
    before: datetime | None
    """Submitted before this time."""
    schedule_id: str | None
    """Created by this schedule."""
    error_contains: str | None
    """The last error contains this text. Case is ignored."""
    metadata: Mapping[str, str] | None
    """The job's metadata contains every entry given."""
    error_group: str | None
    """Dead letters of this group. `dead_letters` lists the groups."""
    lane: str | None
    """In this lane. The topic has to be given too."""


def filter_fields(**which: Unpack[JobFilter]) -> dict[str, Any]:
    """Return the filter by its names on the wire. Raises InvalidArgument for a value that is empty."""
    check_known("A filter of jobs", which, JobFilter.__annotations__)
    named = one_or_several("topic", which.get("topic"), which.get("topics"))
    lane = which.get("lane")
    if lane and (not named["topic"] or named["topics"]):
        raise InvalidArgument(f"lane={lane!r} belongs to a topic: give one topic as well.")
    return {
        **named,
        **one_or_several("status", which.get("status"), which.get("statuses")),
        "submitted_since": aware("since", which.get("since")),
        "submitted_before": aware("before", which.get("before")),
        "schedule_id": not_empty("schedule_id", which.get("schedule_id")),
        "error_contains": not_empty("error_contains", which.get("error_contains")),
        "metadata": which.get("metadata"),
        "error_group": not_empty("error_group", which.get("error_group")),
        "lane": not_empty("lane", lane),
    }


def job_filter(**which: Unpack[JobFilter]) -> pb.JobFilter:
    """Return the filter as a message. Raises InvalidArgument with the name of what cannot be sent."""
    return message(pb.JobFilter, **filter_fields(**which))


def one_or_several(name: str, value: str | None, values: Iterable[str] | None) -> dict[str, Any]:
    """Return the values for the wire. Raises InvalidArgument if one is empty, or if there are none.

    The first goes into the older field: a server that does not know the list takes the jobs of that one, and
    not all jobs.
    """
    plural = f"{name}es" if name.endswith("s") else f"{name}s"
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} has to be a string, but {value!r} was given: {plural} takes several.")
    first = not_empty(name, value)
    others = [] if values is None else [not_empty(plural, one) for one in names_of(plural, values)]
    if values is not None and not others:
        raise InvalidArgument(f"{plural} is empty: give one, or leave it out if any will do.")
    given = list(dict.fromkeys(filter(None, [first, *others])))
    return {name: given[0] if given else "", plural: given[1:]}


def not_empty(name: str, value: str | None) -> str:
    """Return the value for the wire. Raises InvalidArgument if it is given but empty."""
    # On the wire an empty value is no condition. A caller that computed an empty one did not mean that.
    if value == "":
        raise InvalidArgument(f"{name} is empty: give one, or leave it out if any will do.")
    return value or ""


def aware(name: str, moment: datetime | None) -> datetime | None:
    """Return the moment. Raises InvalidArgument if it has no time zone."""
    if isinstance(moment, datetime):
        check_aware(f"{name}={moment!r}", moment, sign="-")
    return moment


def names_of(field: str, names: Iterable[str]) -> list[str]:
    """Return the names as a list. Raises InvalidArgument for a string, which would be one name per letter."""
    if isinstance(names, str):
        raise InvalidArgument(f"{field}={names!r} is a string: give a list, such as {field}=[{names!r}].")
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"{field} has to be a list of strings, but {names!r} was given.")
    return list(names)
