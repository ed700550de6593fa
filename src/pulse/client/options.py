"""The options of an enqueue, as types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypedDict


class ManyOptions(TypedDict, total=False):
    """What can be said about many jobs at once."""

    priority: int
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    timeout: timedelta | None


class EnqueueOptions(ManyOptions, total=False):
    """What can be said about one job."""

    key: str | None
    job_id: str | None
