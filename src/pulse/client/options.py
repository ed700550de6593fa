"""The types of the options of an enqueue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, TypedDict

from pulse.durations import check_timedelta
from pulse.handlers.options import check_attempts, check_priority
from pulse.models.unique import Unique


class ManyOptions(TypedDict, total=False):
    """The options of `enqueue_many`."""

    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int | None
    start_within: timedelta | None
    lane: str | None
    metadata: Mapping[str, str] | None
    unique: Unique | Literal[False] | None
    timeout: timedelta | None


class EnqueueOptions(ManyOptions, total=False):
    """The options of `enqueue`."""

    key: str | None
    job_id: str | None


class ItemOptions(TypedDict, total=False):
    """The options of one item of `enqueue_many`."""

    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int | None
    start_within: timedelta | None
    lane: str | None
    metadata: Mapping[str, str] | None
    unique: Unique | Literal[False] | None
    key: str | None
    job_id: str | None


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidArgument for a duration or a number that is none, where the option is written."""
    for name in ("delay", "start_within", "timeout"):
        if (value := options.get(name)) is not None:
            check_timedelta(name, value)
    if (max_attempts := options.get("max_attempts")) is not None:
        check_attempts(max_attempts)
    if (priority := options.get("priority")) is not None:
        check_priority(priority)
