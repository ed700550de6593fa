"""Moments and durations, between messages and Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse_server.base.errors import InvalidArgument


def moment(timestamp: Timestamp, field: str) -> datetime:
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a valid timestamp.") from None


def duration(span: Duration, field: str) -> timedelta:
    try:
        return span.ToTimedelta()
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a valid duration.") from None


def wire_duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def timestamp(when: datetime | None) -> Timestamp | None:
    return None if when is None else exact_timestamp(when)


def exact_timestamp(when: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(when)
    return message
