"""Times in messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp


def time_of(message: Any, field: str) -> datetime | None:
    """Return the time in a field, aware and in UTC, or None if it is not set."""
    if not message.HasField(field):
        return None
    stamp: Timestamp = getattr(message, field)
    return stamp.ToDatetime(tzinfo=UTC)
