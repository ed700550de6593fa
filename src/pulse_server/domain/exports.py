"""The filter of an export, and a page of its jobs."""

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
    """Whole jobs in the order of submission, and how far the walk came. `jobs` may be empty."""

    jobs: list[Job]
    steps: dict[str, list[Step]]
    """The steps by job id, without values. Jobs without steps have no entry."""
    reached: PageKey | None
    """The next page starts after it. None: nothing follows."""
