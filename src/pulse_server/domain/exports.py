"""What an export asks for, and a page of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pulse_server.domain.jobs import Job, PageKey
from pulse_server.domain.status import TERMINAL, JobStatus
from pulse_server.domain.steps import Step


@dataclass(frozen=True, slots=True)
class ExportFilter:
    """Selects finished jobs by when they finished, by topic and by status. A None matches all."""

    finished_before: datetime
    finished_since: datetime | None = None
    topic: str | None = None
    statuses: frozenset[JobStatus] = TERMINAL


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Whole jobs in the order of submission, and how far the walk came. There may be none that match."""

    jobs: list[Job]
    steps: dict[str, list[Step]]
    """Of the jobs that have some, by job. Without values."""
    reached: PageKey | None
    """The next page starts after it. None: nothing follows."""
