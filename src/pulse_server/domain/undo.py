"""What an undo finds and leaves.

A job keeps the values that the last action on it changed, in its own row, which the action writes
anyway. An undo restores them if the job is as the action left it. A journal of all actions would need
rules for each pair of them. docs/figures.md#undo
"""

from __future__ import annotations

from typing import NamedTuple

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import JobStatus


class ActedOn(NamedTuple):
    """A job that an action changed last."""

    job_id: str
    can_be_undone: bool
    was_running: bool
    """The action canceled it while it ran."""


class Restored(NamedTuple):
    """A job after an undo, and its status before. An undone change of priority keeps the status."""

    job: Job
    before: JobStatus
