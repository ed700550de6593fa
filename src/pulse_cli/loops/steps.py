"""Reads a job together with its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse import JobInfo, StepInfo, SyncPulse


def job_with_steps(client: SyncPulse, job_id: str) -> tuple[JobInfo, list[StepInfo]]:
    """Return the job and its steps. Only a job that has some costs a second call."""
    job = client.get_job(job_id)
    return job, client.steps(job.id) if job.steps else []
