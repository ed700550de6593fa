"""The statuses of a job: which belong together, what each is called, and its mark: never colour alone."""

from __future__ import annotations

from collections.abc import Mapping

from pulse import JobStatus

WAITING = (JobStatus.PENDING, JobStatus.RETRYING)
LIVE = (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRYING)
REDRIVABLE = (JobStatus.DEAD_LETTERED, JobStatus.CANCELED)
TERMINAL = (JobStatus.COMPLETED, *REDRIVABLE)

NAMES: Mapping[str, str] = {
    JobStatus.PENDING: "Pending",
    JobStatus.RUNNING: "Running",
    JobStatus.RETRYING: "Retrying",
    JobStatus.COMPLETED: "Completed",
    JobStatus.DEAD_LETTERED: "Dead",
    JobStatus.CANCELED: "Cancelled",
}
MARKS: Mapping[str, str] = {
    JobStatus.PENDING: "○",
    JobStatus.RUNNING: "▶",
    JobStatus.RETRYING: "↻",
    JobStatus.COMPLETED: "✓",
    JobStatus.DEAD_LETTERED: "✕",
    JobStatus.CANCELED: "–",
}
IN_SENTENCES: Mapping[str, str] = {
    **{status: name.lower() for status, name in NAMES.items()},
    # "Dead jobs" would leave open whether they can come back.
    JobStatus.DEAD_LETTERED: "dead-lettered",
}
