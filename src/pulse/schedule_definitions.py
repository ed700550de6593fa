"""The options of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypedDict

from pulse.models.schedules import CatchUp, Overlap


class ScheduleOptions(TypedDict, total=False):
    """The options of schedules."""

    name: str | None
    priority: int | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    catch_up: CatchUp
    start_within: timedelta | None
    overlap: Overlap
