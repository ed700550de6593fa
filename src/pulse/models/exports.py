"""Exported jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.jobs import JobInfo, job_info
from pulse.models.steps import StepInfo, step_info
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class ExportedJobs:
    """The next jobs of an export, with their payloads and histories. There may be none."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Pass it to another `export_jobs` to continue after these jobs. None: nothing follows."""
    before: datetime | None
    """The export has the jobs that finished before it. Begin the next one here."""
    steps: Mapping[str, tuple[StepInfo, ...]] = field(default_factory=dict)
    """The steps of those jobs that have some, by job id, without values."""

    def __iter__(self) -> Iterator[JobInfo]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


def exported_jobs(response: pb.ExportJobsResponse) -> ExportedJobs:
    """Return the jobs in a message."""
    return ExportedJobs(
        tuple(map(job_info, response.jobs)),
        response.next_page_token or None,
        time_of(response, "finished_before"),
        {of_job.job_id: tuple(map(step_info, of_job.steps)) for of_job in response.steps},
    )
