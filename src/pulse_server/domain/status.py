"""The states of a job and the arrows between them. docs/job-lifecycle.md draws the same machine."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    PENDING = "PENDING"  # waits for a claim; the promoter makes it ready when it is due
    RUNNING = "RUNNING"  # a worker holds its lease; a report, a release, the watchdog or a cancel moves it on
    RETRYING = "RETRYING"  # an attempt failed or was handed back; waits for the next claim
    COMPLETED = "COMPLETED"  # a worker reported success; final
    DEAD_LETTERED = "DEAD_LETTERED"  # out of attempts, or discarded; an operator may redrive it
    CANCELED = "CANCELED"  # an operator or the application called it off; an operator may redrive it


WAITING = frozenset({JobStatus.PENDING, JobStatus.RETRYING})
LIVE = frozenset({JobStatus.PENDING, JobStatus.RETRYING, JobStatus.RUNNING})
TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED})
REDRIVABLE = frozenset({JobStatus.DEAD_LETTERED, JobStatus.CANCELED})

# How a job begins: in line, or with a worker that waited for it.
INITIAL = frozenset({JobStatus.PENDING, JobStatus.RUNNING})

LEGAL_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    # An undone retry may be dead-lettered again.
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.CANCELED, JobStatus.DEAD_LETTERED}),
    JobStatus.RETRYING: frozenset({JobStatus.RUNNING, JobStatus.CANCELED}),
    JobStatus.RUNNING: frozenset(
        {JobStatus.COMPLETED, JobStatus.RETRYING, JobStatus.DEAD_LETTERED, JobStatus.CANCELED}
    ),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.DEAD_LETTERED: frozenset({JobStatus.PENDING}),
    # An undone cancel may wait for its retry again.
    JobStatus.CANCELED: frozenset({JobStatus.PENDING, JobStatus.RETRYING}),
}
